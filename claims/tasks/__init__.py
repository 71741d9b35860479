"""Terraform and other tasks that agents run for claims. The modules of this folder itself import
nothing else of `claims`.
"""
