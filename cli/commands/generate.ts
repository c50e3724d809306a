import { resolve } from 'node:path';
import { Option, type Command } from 'commander';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import type { Quality } from '../../shared/settings/quality.js';
import { qualityFlag } from '../../shared/settings/value-kinds.js';
import type { EmulationSettings } from '../../shared/settings/node-settings.js';
import { PRECISIONS, type ExpertStorage } from '../../shared/settings/setting-choices.js';
import { SETTINGS } from '../../shared/settings/settings-table.js';
import { addGenerationFlags, generationRequestFrom, type GenerationFlags } from '../client/generation-flags.js';
import { promptText } from '../client/prompt-text.js';
import { withInterrupt } from '../client/interrupt.js';
import { addLocalEngineFlags, openLocalEngine, type LocalEngineFlags } from '../client/local-engine-flags.js';
import { settingFlag } from '../client/setting-flags.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { generationSummary, renderGeneration, weightFormSummary } from '../output/generation-output.js';
import { standardError } from '../../shared/base/text/text-output.js';

interface GenerateFlags extends GenerationFlags, LocalEngineFlags {
  shadow?: ShadowPrecision;
  profile?: string;
  expertStorage?: ExpertStorage;
  quality?: Quality;
}

/** `odmoe generate`: runs the single-process engine. */
export function registerGenerateCommand(program: Command): void {
  const command = program
    .command('generate')
    .description('answer a prompt in this process, with all experts in memory')
    .argument('<model>', 'a pack, a Hugging Face checkpoint directory, or a GGUF file')
    .argument('[text]', 'the prompt; - or nothing: it comes by standard input');
  addLocalEngineFlags(addGenerationFlags(command))
    .addOption(
      new Option(
        '--shadow <precision>',
        'also run a quantized shadow, and report how well it predicts the experts',
      ).choices(PRECISIONS),
    )
    .option(
      '--quality <quality>',
      "how exactly experts are computed: exact, or from a pack's slices, as sliced(8,4) (default: exact)",
      qualityFlag,
    )
    .option('--profile <file>', 'take the time and memory of the machine "cached" described there (bench/profiles)')
    .addOption(
      settingFlag(
        SETTINGS.emulation.expertStorage,
        '<form>',
        'how the profiled testbed stores experts (default: fp32)',
      ).default(undefined),
    )
    .addHelpText(
      'after',
      `
The model must fit into the memory of the device (--device cpu: this machine's): this is the reference that a cluster
equals to the bit, and what it is measured against.

--resident fixed4 keeps BF16 experts, attention projections and LM head with exponents of 4 bits: the same tokens and
log-probabilities, to the bit, from about 77 % of the bytes, and so faster where memory is what limits. A matrix whose exponents are
too varied for it stays as shipped; "resident" in the --json output counts the matrices of each form, and those that stayed.
--resident auto measures, half a second long, which of both is faster on this machine, takes it and says so.

--quality computes with the slices of a pack (odmoe pack --slices), which changes answers: sliced(8,4) reads all bits, sliced(8,4,low) the
upper 4 bits of each weight, sliced(8,4,critical=0.3) all bits for the 0.3 of executions that weigh most in their token, and
sliced(8,4,cached=1.8GB,miss=0.05) lets bits and the choice of experts follow a cache of this size that the answer imagines, and aims at
no more than 0.05 of the bytes missing. Behind miss=0.05 may stand dbsc=background or dbsc=never (all bits that are missing come later, or not
at all) and routing=cumulative(0.9,1) or routing=cache-prior(0.4,1) (experts in the cache are preferred), in this order. "arithmetic" in
the --json output names it. Quote it for the shell.

--profile emulates the fully cached deployment of a testbed: the tokens are this model's, each operation takes the time that the profiled
machine needs for the profiled model, and memory is counted in its bytes. A machine slower than the profiled one shows its own speed.

Examples:
  odmoe generate models/demo "Tell me a story about a fox."
  odmoe generate models/demo "What is 17 plus 25?" --json
  odmoe generate models/demo "Name a fox." --response-format '{"type":"object","properties":{"name":{"type":"string"}}}'
  odmoe generate ~/mixtral-pack "Write a haiku." --temperature 0.8 --top-p 0.95 --seed 1
  odmoe generate models/demo "Sort these numbers: 7 2 9 4" --shadow nf4
  odmoe generate models/demo "Sort these numbers: 7 2 9 4" --shadow 'sliced(8,4,low)'
  odmoe generate ~/mixtral-pack "Write a haiku." --resident fixed4
  odmoe generate ~/mixtral-pack "Write a haiku." --quality 'sliced(8,4,low)'
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
  const request = generationRequestFrom(flags, await promptText(text, flags.promptTokenIds !== undefined));
  const engine = await openLocalEngine(directory, flags, {
    emulation: emulationFrom(flags),
    shadow: flags.shadow ?? null,
    ...(flags.quality && { quality: flags.quality }),
  });
  try {
    const resident = { ...engine.residentWeights(), choice: engine.weightFormChoice };
    const result = await withInterrupt((signal) =>
      renderGeneration(engine.generate(request, signal), {
        json: flags.json,
        stream: !flags.json,
        resident,
      }),
    );
    if (!flags.json && standardError.isTerminal) {
      standardError.write(`${generationSummary(result)}, ${weightFormSummary(resident)}\n`);
    }
  } finally {
    engine.dispose();
  }
}
