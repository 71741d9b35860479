"""The admin's entry in INSTALLED_APPS. Django imports this module before the apps are ready, so it
must not import the site.
"""

from django.contrib.admin.apps import AdminConfig


class BerthAdminConfig(AdminConfig):
    default_site = "project.kernel.ui.admin_site.BerthAdminSite"
