from django.apps import AppConfig


class SampleConfig(AppConfig):
    name = "project.sample"
    label = "sample"
