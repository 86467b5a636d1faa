"""jaxbench: does my idea really help?"""

__version__ = "0.1.0"
