"""How fast the clients compute: one factor per client, drawn once per experiment."""

from testbed.emulation.devices.section import MODELS, DeviceModel, Devices, speed_factors, zipf_factors

__all__ = ["MODELS", "DeviceModel", "Devices", "speed_factors", "zipf_factors"]
