"""The configuration file remediator.yml, section by section."""
