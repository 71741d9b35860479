"""Rescued Terraform states: stored, listed, downloaded, discarded."""
