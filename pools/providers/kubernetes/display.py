"""What the pages show of pools of pods."""

from pools.providers.display import OptionField, OptionForm, ProviderTexts

TEXTS = ProviderTexts(
    choice="pods that Berth makes in a namespace",
    adding="Berth creates a pod for each in the pool’s namespace.",
    takes_claims="They take claims once the agents in their pods are here.",
    creating="Its agent is being started.",
)
FORM = OptionForm(
    "Pods",
    (
        OptionField("template.image", "Image", "With python3, like registry.example/berth-agent:1"),
        OptionField(
            "context", "Context", "Of the kubeconfig. Empty: the cluster that Berth runs in"
        ),
        OptionField("namespace", "Namespace", "Empty: that of the context"),
        OptionField(
            "url",
            "Berth’s address for them",
            "Like https://berth.example.com/. Empty: BERTH_AGENT_URL",
        ),
        OptionField(
            "template.service_account",
            "Service account",
            "Empty: none, and no token of the cluster",
        ),
    ),
    "Resources, tolerations and more of their template stand in the file.",
)
