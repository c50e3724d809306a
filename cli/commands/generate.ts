import { resolve } from 'node:path';
import { Option, type Command } from 'commander';
import { realDevices } from '../../engine/environment/node-environment.js';
import { LocalEngine } from '../../engine/generation/local-engine.js';
import { ARITHMETICS } from '../../shared/config/cluster-config.js';
import { wholeNumberFlag } from '../../shared/daemon/whole-number-flag.js';
import { THREADS_LIMIT } from '../../shared/config/setting-limits.js';
import { deviceFlag, type DeviceName, deviceNamed } from '../../shared/config/device-name.js';
import { EXPERT_STORAGES, type EmulationSettings, type ExpertStorage } from '../../shared/config/node-settings.js';
import { addGenerationFlags, generationRequestFrom, type GenerationFlags } from '../client/generation-flags.js';
import { withInterrupt } from '../client/interrupt.js';
import { OdmoeError } from '../../shared/errors/odmoe-error.js';
import { generationSummary, renderGeneration, residentSummary } from '../output/generation-output.js';
import { createProgressBar } from '../../shared/terminal/progress-bar.js';
import { runtime } from '../client/process-runtime.js';

interface GenerateFlags extends GenerationFlags {
  resident?: 'bf16' | 'fixed4';
  shadow?: 'int8' | 'nf4' | 'fp16';
  threads: number;
  device: DeviceName;
  arithmetic: (typeof ARITHMETICS)[number];
  profile?: string;
  expertStorage?: ExpertStorage;
}

/** Rows of one prefill pass: enough for every expert to see many tokens at once; a larger pass takes memory and gains little. */
const PREFILL_ROWS = 256;
const SEED_LIMIT = 2 ** 47;

/** `odmoe generate`: the single-process engine. */
export function registerGenerateCommand(program: Command): void {
  const command = program
    .command('generate')
    .description('answer a prompt in this process, with all experts in memory')
    .argument('<model>', 'a pack, or a Hugging Face checkpoint directory')
    .argument('[text]', 'the prompt');
  addGenerationFlags(command)
    .addOption(
      new Option(
        '--resident <format>',
        'how the weights are kept in memory: fixed4 gives the same answer from fewer bytes (default: as shipped)',
      ).choices(['bf16', 'fixed4']),
    )
    .addOption(
      new Option(
        '--shadow <precision>',
        'also run a quantized shadow, and report how well it predicts the experts',
      ).choices(['int8', 'nf4', 'fp16']),
    )
    .option('--device <name>', 'auto (a GPU where one can be used), cpu, cuda or cuda:N', deviceFlag, 'auto')
    .addOption(
      new Option('--arithmetic <kind>', "of a GPU; fast: tensor cores, whose answer is not the one arithmetic's")
        .choices(ARITHMETICS)
        .default('exact'),
    )
    .option(
      '--threads <n>',
      'processor threads to compute with (0: as many as there are)',
      wholeNumberFlag(0, THREADS_LIMIT),
      0,
    )
    .option('--profile <file>', 'take the time and memory of the machine "cached" described there (bench/profiles)')
    .addOption(
      new Option('--expert-storage <form>', 'how the profiled testbed stores experts (default: fp32)').choices(
        EXPERT_STORAGES,
      ),
    )
    .addHelpText(
      'after',
      `
The model must fit into the memory of the device (--device cpu: this machine's): this is the reference that a cluster
equals to the bit, and what it is measured against.

--resident fixed4 keeps BF16 experts, attention projections and LM head with exponents of 4 bits: the same tokens and
log-probabilities, to the bit, from about 77 % of the bytes, and so faster where memory is what limits. A matrix whose exponents are
too varied for it stays as shipped; "resident" in the --json output counts the matrices of each form, and those that stayed.

--profile emulates the fully cached deployment of a testbed: the tokens are this model's, each operation takes the time that the profiled
machine needs for the profiled model, and memory is counted in its bytes. A machine slower than the profiled one shows its own speed.

Examples:
  odmoe generate models/demo "Tell me a story about a fox."
  odmoe generate models/demo "What is 17 plus 25?" --json
  odmoe generate ~/mixtral-pack "Write a haiku." --temperature 0.8 --top-p 0.95 --seed 1
  odmoe generate models/demo "Sort these numbers: 7 2 9 4" --shadow nf4
  odmoe generate ~/mixtral-pack "Write a haiku." --resident fixed4
  odmoe generate models/demo "Tell me a story." --profile bench/profiles/rtx3090-testbed.yaml --json
  odmoe generate ~/model --prompt-token-ids 1,15,7 --max-tokens 20 --json`,
    )
    .action(async (model: string, text: string | undefined, flags: GenerateFlags) => generate(model, text, flags));
}

function emulationFrom({ profile, expertStorage }: GenerateFlags): EmulationSettings | null {
  if (profile !== undefined) return { profilePath: resolve(profile), expertStorage: expertStorage ?? 'fp32' };
  if (expertStorage === undefined) return null;
  throw new OdmoeError('USAGE', '--expert-storage says how a profiled testbed stores experts: give its --profile too');
}

async function generate(directory: string, text: string | undefined, flags: GenerateFlags): Promise<void> {
  const request = generationRequestFrom(flags, text);
  const bar = createProgressBar('loading the model');
  try {
    const engine = await LocalEngine.open(directory, {
      device: {
        ...deviceNamed(flags.device),
        arithmetic: flags.arithmetic,
        ...{ instructionSet: 'auto', threads: flags.threads, budgetBytes: 0 },
      },
      emulation: emulationFrom(flags),
      resident: flags.resident ?? null,
      shadow: flags.shadow ?? null,
      prefillRows: PREFILL_ROWS,
      chooseSeed: () => runtime.randomInt(SEED_LIMIT),
      environment: realDevices(),
      onProgress: bar.update,
    });
    bar.stop();
    const resident = engine.residentWeights();
    try {
      const result = await withInterrupt((signal) =>
        renderGeneration(engine.generate(request, signal), { json: flags.json, stream: !flags.json, resident }),
      );
      if (!flags.json && process.stderr.isTTY) {
        process.stderr.write(`${generationSummary(result)}, ${residentSummary(resident)}\n`);
      }
    } finally {
      engine.dispose();
    }
  } finally {
    bar.stop();
  }
}
