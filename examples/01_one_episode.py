"""One episode of GrepSeek-v0 on the bundled world, every turn written by hand. Runs in a second, no download."""

import gymnasium

import grepseek_env  # noqa: F401  importing it registers the ids

env = gymnasium.make("GrepSeek-v0", render_mode="ansi")
observation, info = env.reset(seed=0)
print(env.unwrapped.system_prompt, end="\n\n")

# A search: the longest capitalised word of the question is most likely a name.
word = max((w.strip("?.,") for w in observation.split()[1:] if w[0].isupper()), key=len)
turn = (
    f"<think>The question is about {word}; I look for lines that name it.</think>\n"
    f'<tool_call>{{"name": "shell", "arguments": {{"command": "rg -F {word} corpus.jsonl | head -n 3"}}}}</tool_call>'
)
observation, reward, terminated, truncated, info = env.step(turn)
print("exit code", info["exit_code"], "- output cut:", info["output_truncated"])

# The answer ends the episode. Here it is only a guess, so the reward is most likely the format bonus alone.
turn = f"<think>The lines do not settle it; I guess.</think>\n<answer>{word}</answer>"
observation, reward, terminated, truncated, info = env.step(turn)

print(env.render())
print(f"reward {reward:.2f}, terminated {terminated}, parts {info['reward_breakdown']}")
env.close()
