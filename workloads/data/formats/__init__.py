"""What files of data sets look like, and how they are read."""
