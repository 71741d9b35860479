from django.db import migrations


class Migration(migrations.Migration):
    """Not a model: two statements own it, and nobody browses it. Unlogged: after a crash everybody may try again."""

    dependencies = [("kernel", "0001_initial")]

    operations = [
        migrations.RunSQL(
            """
            CREATE UNLOGGED TABLE kernel_sign_in_attempt (
                key text PRIMARY KEY,
                free int NOT NULL,
                longest int NOT NULL,
                attempts int NOT NULL DEFAULT 1,
                last_at timestamptz NOT NULL DEFAULT now(),
                wait_until timestamptz NOT NULL DEFAULT now()
            )
            """,
            "DROP TABLE kernel_sign_in_attempt",
        )
    ]
