"""The scripts of real kubectl that Remuda's API is compared with a real one by, run through the gateway's proxy on both."""
