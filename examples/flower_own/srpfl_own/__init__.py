"""An app with a model and data of its own: copy it and put in yours."""
