from django.db import migrations


class Migration(migrations.Migration):
    """Not a model: one statement owns it (project.kernel.doctor.restore_detection), and nobody browses it. Without a row: just restored."""

    dependencies = [("kernel", "0002_sign_in_attempt")]

    operations = [
        migrations.RunSQL(
            """
            CREATE TABLE kernel_database_place (
                id int PRIMARY KEY CHECK (id = 1),
                server bigint NOT NULL,
                database bigint NOT NULL,
                timeline text NOT NULL,
                since timestamptz NOT NULL
            )
            """,
            "DROP TABLE kernel_database_place",
        )
    ]
