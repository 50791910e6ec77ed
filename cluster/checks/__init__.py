"""Does a cluster fit an experiment?"""
