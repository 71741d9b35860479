"""Names and colours of the admin."""

ACCENT = {
    "50": "#effafa",
    "100": "#d6f1f2",
    "200": "#b0e3e6",
    "300": "#7dced4",
    "400": "#49b8be",
    "500": "#2a9aa3",
    "600": "#0b6e78",
    "700": "#0d5c66",
    "800": "#124c54",
    "900": "#143f46",
    "950": "#06282e",
}
UNFOLD = {
    "SITE_TITLE": "Berth admin",
    "SITE_HEADER": "Berth",
    "SITE_SUBHEADER": "All tables",
    "SITE_SYMBOL": "anchor",
    "SITE_URL": "/",
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "COLORS": {"primary": ACCENT},
}
