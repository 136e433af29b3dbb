"""Episodes with a model behind an OpenAI-compatible server: vLLM, SGLang, or a hosted one.

    python examples/06_openai_endpoint.py --base-url http://localhost:8000/v1 --model NAME

Without --base-url a stand-in server is started that knows no more than plain string search, so that it runs anywhere.
"""

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from algos.rollout import rollout_groups, summarize
from grepseek_env import GrepSeekEnv
from grepseek_env.actions import get_action_format
from grepseek_env.render import render_trajectory
from policies.chat import Sampling
from policies.chat_policy import ChatPolicy
from policies.keyword import guess, search_terms
from policies.openai_api import OpenAIModel


class StandIn(BaseHTTPRequestHandler):
    """Answers chat requests the way a server with a reasoning parser does: thought and text apart, stop string cut."""

    def do_POST(self) -> None:
        """Writes the next turn of the conversation."""
        messages = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        question = messages[1]["content"].removeprefix("Query: ")
        terms = search_terms(question)
        write = get_action_format("hermes").render_action
        if len(messages) == 2:
            turn = write("x", command=f'rg -i -F "{terms[0]}" corpus.jsonl | head -n 8')
        else:
            turn = write("x", answer=guess(question, [messages[-1]["content"]], terms))
        text, stop = turn.partition("\n")[2].removesuffix("</answer>").removesuffix("</tool_call>"), turn[-9:]
        message = {"role": "assistant", "content": text, "reasoning_content": f"I think of {terms[0]}."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        if stop == "</answer>":  # some servers say which stop string they met, others do not
            choice["stop_reason"] = stop
        body = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Says nothing."""


parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--base-url")
parser.add_argument("--model", default="stand-in")
parser.add_argument("--questions", type=int, default=20)
parser.add_argument("--parallel", type=int, default=8)
args = parser.parse_args()

if args.base_url is None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    args.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"

env = GrepSeekEnv(corpus="world:tiny", shuffle=False)
# Requests that fail are tried again for at most a minute each; an episode whose model stays away does not count.
model = OpenAIModel(args.model, base_url=args.base_url, deadline=60.0)
policy = ChatPolicy(model, Sampling(temperature=0.0, max_tokens=512))

asked = [env.question_set[i] for i in range(args.questions)]
groups = rollout_groups(env, policy, asked, 1, parallel=args.parallel)
trajectories = [t for group in groups for t in group.trajectories]
print(render_trajectory(trajectories[0]))
s = summarize(trajectories)
print(f"{s.episodes} episodes ({s.faults} faults): F1 {s.f1:.3f}  format {s.format_valid:.2f}  turns {s.turns:.1f}")
policy.close()
env.close()
