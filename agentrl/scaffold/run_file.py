"""The commented run file that ``agentrl init`` writes: it trains a tiny agent in two minutes."""

RUN_FILE = """\
# One run: agentrl train THIS_FILE. Every value can be overridden on the command line:
#   agentrl train THIS_FILE seed=1 stages.1.iterations=20
# Keys that are left out have the defaults shown in comments; unknown keys are refused.
# 'agentrl train THIS_FILE --dry-run' checks everything that needs no weights.

run_dir: runs/run          # must be new; holds store, model, report and curve afterwards
seed: 0                    # tasks, weights, episodes and panels derive from it
threads: 1                 # torch threads; 0: one per physical core
# deterministic: false     # the same weights to the last bit each time, also after a kill; slower

model:                     # exactly one of path and create
  # path: Qwen/Qwen2.5-1.5B-Instruct   # a folder, a hub id, or builtin:NAME
  create:                  # a tiny policy from random weights, and its tokenizer
    hidden_size: 64
    layers: 2
    heads: 4
    vocab_size: 320
    context_tokens: 512
    text_tasks: 64         # train tasks whose text trains the tokenizer
  dtype: float32           # float32, bfloat16 or auto
  device: auto             # auto, cpu, cuda or cuda:N
  # lora: {rank: 16, alpha: 32, dropout: 0, target_modules: all-linear, dtype: float32}
  # adapter: RUN/adapter   # that lora begins with; without lora all weights are trained

env:
  name: toy                # 'agentrl list env', or my_module:MyFactory (which runs that code)
  options: {}              # the factory's keyword arguments
  train_split: train
  validation_split: validation   # for the curve and early stopping
  test_split: test         # touched twice: before and after
  workers:                 # processes for episodes: what blocks or dies there stops nothing else
    processes: 0           # 0: none, episodes are played in the run's own process
    # episodes: null       # in one process at a time; null: rollout.concurrency shared out
    # python: null         # another interpreter, with the packages that the environment needs
    # start_timeout_s: 120 # until a process has its factory
    # grace_s: 10          # to close what was cancelled; then the process is killed

agent:
  renderer: {name: plain}  # chat for chat models, plain for tiny ones
  memory: {name: transcript}     # what the policy sees of the past: transcript, window
  action_format: bare      # bare: the whole answer; tagged: <think>..</think><action>..</action>
  # tool_dialect: auto     # of action_format: tools; auto: as the chat template writes calls
  # system_prompt: ""
  max_steps: 20            # budgets of one episode
  max_tokens: 512          # prompt and answer of one step
  max_seconds: 60
  # max_truncated: 0       # cut answers in a row that end the episode; 0: max_steps does

engine:
  name: hf                 # samples in this process, from the very weights that are trained
  options: {context_tokens: 512}
  # threads: 0             # of its own process (rollout.max_staleness); 0: half of the cores

sampling:
  temperature: 1.0
  # top_p: 1.0             # training wants 1.0 and 0: what is sampled is what is trained
  # top_k: 0
  max_tokens: 8            # longest answer of one step

rollout:                   # limits of the machine; missing one is an infra failure, no reward
  concurrency: 128         # episodes in flight
  # env_concurrency: 0     # of these, how many of one environment; 0: no limit
  # tokens_in_flight: 0    # prompts and longest answers sampled at once; 0: no limit
  # retries: 2             # new attempts after an infra failure, each with a fresh environment
  # backoff_s: 0.5         # pause before the first; then it doubles
  # make_timeout_s: 300
  # reset_timeout_s: 120
  # step_timeout_s: 120
  # close_timeout_s: 30
  # sample_timeout_s: 600
  # episode_timeout_s: null        # of a whole attempt; null: what its other limits add up to
  # stall_timeout_s: null  # nothing moves for so long: stop; null: twice the longest deadline
  # give_up_after: 16      # failed episodes in a row that stop the run
  # poison_after: 4        # episodes of a task that failed for good set it aside; 0: never
  # quorum: 0              # episodes that a training group needs; 0: whatever finished
  # straggler_timeout_s: null      # abandon the rest of a group so long after its quorum
  # max_staleness: 0       # above 0: rollouts go on while the learner works, so many versions ahead
  # late_groups: wait      # or drop: what becomes of groups that would grow older than that

store:
  synchronous: normal      # full: what was played survives a power cut too

learner:
  learning_rate: 0.0002
  # warmup_updates: 0
  # schedule: constant     # constant, linear, cosine
  # weight_decay: 0.0
  # adam_beta2: 0.999
  # max_grad_norm: 1.0
  # loss: dapo             # dapo, cispo, loop, no_ratio, gspo_token, cpgd, decoupled
  # epsilon_low: null      # null, here and below: the value published with the loss
  epsilon_high: 0.28
  # dual_clip: null        # dapo, decoupled
  # tau: null              # no_ratio
  # drift: null            # cpgd
  # weight_cap: null       # decoupled
  # distillation: null     # {kind: gated, coefficient: 0.01}; needs an annotator that teaches
  # kl_coefficient: 0.0    # KL to the model that the stage began with
  # trajectory_weighting: equal    # equal: every trajectory counts once; tokens: every token
  micro_batch_tokens: 2048

stages:                    # one after another
  - kind: clone            # imitate the environment's expert; remove it if there is none
    updates: 400
    episodes_per_update: 16
    demonstrations: 274    # tasks of the train split to clone from
    noise: 0.3             # share of random commands: they are seen, not imitated
    learner: {learning_rate: 0.003, warmup_updates: 20, schedule: cosine}
  - kind: rl               # learn from episodes of its own
    iterations: 16
    tasks_per_iteration: 16
    group_size: 8          # episodes of one task, compared with one another
    updates_per_iteration: 8
    credit: {name: gigpo, options: {invalid_action_penalty: 0.1}}  # 'agentrl list credit'
    # annotators: []       # add what credit needs and only a model knows (hidden_states)
    # strategies: []       # fewer or harder episodes, replays: 'agentrl list strategy'
    # max_seconds: 600     # stop the stage after this long

checkpoints:               # what 'agentrl train --resume RUN_DIR' goes on from
  every: 5                 # rl iterations between them; 0: at the end of stages only
  # every_updates: 100     # the same for the updates of clone stages
  # keep: 2

# trackers: []             # numbers go there too: [{name: tensorboard}], 'agentrl list tracker'

evaluation:
  tasks: 64                # of the test split
  validation_tasks: 64
  every: 4                 # iterations between validations; 0: never
  trials: 1                # episodes per test task
  greedy: true             # report greedy success too
  # early_stop_success: 0.95
"""
