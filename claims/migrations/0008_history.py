"""What ran in a workspace is found by the workspace, also after its claims have ended."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('claims', '0007_rivals'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='claim',
            index=models.Index(condition=models.Q(('workspace__isnull', False)), fields=['workspace', 'id'], name='claim_history'),
        ),
    ]
