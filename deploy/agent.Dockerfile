# An agent as an image: python3 and one file. Add what its tasks call: tofu or terraform, git, command line clients.
#   docker build -f deploy/agent.Dockerfile -t berth-agent --build-arg BERTH=https://berth.example.com .
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b
ARG BERTH
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates git openssh-client \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10002 --create-home --home-dir /state agent && chmod 700 /state
ADD --chmod=644 ${BERTH}/agent/berth-agent.pyz /berth-agent.pyz
ENV BERTH_URL=${BERTH} BERTH_AGENT_STATE=/state BERTH_AGENT_TOKEN_FILE=/run/secrets/berth/token PYTHONUNBUFFERED=1
USER agent
# TERM lets its tasks end first: give it the time that they may take, and say it in BERTH_AGENT_END_WITHIN. As process 1 it is its own init.
STOPSIGNAL SIGTERM
CMD ["python3", "/berth-agent.pyz"]
