"""REST and dialogs of the scaler."""
