"""What the pages show of pools of pods."""

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
        OptionField(
            "template.image", "Image", "An image with python3, like registry.example/berth-agent:1"
        ),
        OptionField(
            "context", "Context", "Context of the kubeconfig. Empty: the cluster that Berth runs in"
        ),
        OptionField("namespace", "Namespace", "Empty: the namespace of the context"),
        OptionField(
            "url",
            "Berth address",
            "Called by the pods, like https://berth.example.com/. Empty: BERTH_AGENT_URL",
        ),
        OptionField(
            "template.service_account",
            "Service account",
            "Empty: none, and the pods get no cluster token",
        ),
    ),
    "Resources, tolerations and other options of the template are set in the file.",
)
