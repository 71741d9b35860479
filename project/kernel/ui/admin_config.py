"""The admin's entry in INSTALLED_APPS. Apart from the site itself: it is imported before the
apps are ready.
"""

from django.contrib.admin.apps import AdminConfig


class BerthAdminConfig(AdminConfig):
    default_site = "project.kernel.ui.admin_site.BerthAdminSite"
