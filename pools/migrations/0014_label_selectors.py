"""Functions that compare the labels of a member with a selector (pools/config/label_selector.py)."""

from django.db import migrations

# `labels @>` is the fast path of plain values. A text never equals an object, so it is false for
# every selector with a condition.
CREATE = """
CREATE FUNCTION label_conditions_hold(selector jsonb, labels jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT coalesce(bool_and(CASE WHEN jsonb_typeof(t.term) = 'object' THEN
      (NOT t.term ? 'in' OR coalesce(t.term->'in' ? (labels->>t.name), false))
      AND (NOT t.term ? 'not_in' OR coalesce(NOT t.term->'not_in' ? (labels->>t.name), true))
      AND (NOT t.term ? 'exists' OR (labels ? t.name) = (t.term->>'exists')::boolean)
    ELSE coalesce(labels->t.name = t.term, false) END), true)
  FROM jsonb_each(selector) AS t(name, term) $$;
CREATE FUNCTION selects(selector jsonb, labels jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT labels @> selector OR
    (selector @? '$.* ? (@.type() == "object")' AND label_conditions_hold(selector, labels)) $$;
"""
DROP = """
DROP FUNCTION selects(jsonb, jsonb);
DROP FUNCTION label_conditions_hold(jsonb, jsonb);
"""


class Migration(migrations.Migration):
    dependencies = [("pools", "0013_strays")]

    operations = [migrations.RunSQL(CREATE, DROP)]
