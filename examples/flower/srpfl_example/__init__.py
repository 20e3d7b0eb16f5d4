"""An example app: copy it and put in your own model and data."""
