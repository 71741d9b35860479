"""Texts and form fields of pools of pods."""

from pools.providers.display import OptionField, OptionForm, ProviderTexts

TEXTS = ProviderTexts(
    choice="pods that Berth creates in a namespace",
    adding="Berth creates a pod for each in the pool’s namespace.",
    takes_claims="They take claims once their pods are ready.",
    creating="Its pod is being started.",
)
FORM = OptionForm(
    "Pods",
    (
        OptionField("template.image", "Image"),
        OptionField("context", "Context"),
        OptionField("namespace", "Namespace"),
        OptionField("url", "Berth address"),
        OptionField("template.service_account", "Service account"),
    ),
    "Resources, tolerations and other options of the template are set in the file.",
)
