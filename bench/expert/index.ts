import { InvalidArgumentError, type Command } from 'commander';
import { parseWhole } from '../../cli/client/generation-flags.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { tableLines } from '../../cli/output/table.js';
import { type ExpertForm, type ExpertSpeed, measureExperts, openDevice } from '../../native/index.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { THREADS_LIMIT } from '../../shared/settings/setting-limits.js';
import { type BlockFormat, FIXED_BLOCKS, GGUF_BLOCKS, isBlockFormat } from '../../shared/model/block-formats.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import type { MeasuredRun } from '../history/measured-run.js';

interface BenchExpertFlags {
  hidden: number;
  intermediate: number;
  experts: number;
  tokens: Int32Array;
  format: FormName[];
  milliseconds: number;
  threads: number;
  json: boolean;
}

/** The forms of BF16 weights that --format takes, beside the block formats. `low`: the upper slice alone. */
const FORMS = {
  fixed4: { format: 'fixed4', upperAlone: false },
  'sliced(8,4)': { format: 'sliced84', upperAlone: false },
  'sliced(8,4,low)': { format: 'sliced84', upperAlone: true },
  'sliced(6,3)': { format: 'sliced63', upperAlone: false },
  'sliced(6,3,low)': { format: 'sliced63', upperAlone: true },
  'sliced(4,2)': { format: 'sliced42', upperAlone: false },
  'sliced(4,2,low)': { format: 'sliced42', upperAlone: true },
} as const satisfies Record<string, ExpertForm>;
type FormName = keyof typeof FORMS | BlockFormat;

const FORM_NAMES = [
  ...Object.keys(FORMS),
  ...FIXED_BLOCKS,
  ...Object.keys(GGUF_BLOCKS),
  'grouped4-bf16-g32',
  'grouped8-fp16-g128-z',
];

/** One line of the table, or one entry of --json. */
interface ExpertFigure {
  weights: 'bf16' | FormName;
  tokens: number;
  gbS: number;
  gweightsS: number;
  readBandwidthGbS: number;
  readShare: number;
  speedupOverBf16: number;
}

/** Total bytes of BF16 expert weights unless --experts is given; far above the size of processor caches. */
const BF16_BYTES = 512 * 2 ** 20;

/** `odmoe bench expert`: compares compute on compressed weights with compute on plain ones. */
export function registerBenchExpert(bench: Command, run: MeasuredRun): void {
  bench
    .command('expert')
    .description(
      'speed of expert execution from BF16 weights and from other forms of them, beside the memory read bandwidth',
    )
    .option('--hidden <n>', 'hidden size', parseSize, 1024)
    .option('--intermediate <n>', 'intermediate size of an expert', parseSize, 3584)
    .option('--experts <n>', 'experts of each form (0: as many as are 512 MiB of BF16)', parseWhole, 0)
    .option(
      '--tokens <list>',
      'tokens that an expert is executed on at once',
      parseTokens,
      Int32Array.of(1, 2, 4, 8, 16),
    )
    .option('--format <forms>', `forms beside BF16, separated by spaces: ${FORM_NAMES.join(' ')} ...`, parseForms, [
      'fixed4',
    ])
    .option('--milliseconds <n>', 'how long each number of tokens is measured', parseSize, 4000)
    .option('--threads <n>', 'threads to compute with (0: as many as there are)', wholeNumberFlag(0, THREADS_LIMIT), 0)
    .option('--json', 'print one JSON array and nothing else', false)
    .addHelpText(
      'after',
      `
An execution is the gate and up products, SwiGLU and the down product of one expert, on random weights. In each round a buffer of
256 MiB is read, then every BF16 expert is executed once, then every expert of each other form once; experts are so many that none
is in a cache when its turn comes again. Medians over the rounds count. sliced(h,l) reads both slices, sliced(h,l,low) has and reads
the upper slice alone. Formats of blocks have random codes: fp8-row to nvfp4-divided, those of GGUF files, and grouped codes of 4 or
8 bits (their scales' type, the columns of a group or "row", and z where groups have zero points).

gb_s                 bytes of weights, as they are stored in memory (fixed4 stores about 0.77 of BF16), over the time of the
                     execution: comparable with read_bandwidth_gb_s, and not more than it where weights come from memory
gweights_s           billions of weights over the same time
read_bandwidth_gb_s  of the same rounds
read_share           gb_s over read_bandwidth_gb_s
speedup_over_bf16    BF16's time over this form's, for the same experts and tokens

The energy of the whole run stands below the table and in the line of --record, where this machine has counters of it.

Examples:
  odmoe bench expert
  odmoe bench expert --hidden 4096 --intermediate 14336 --tokens 1,4 --json
  odmoe bench expert --tokens 1 --format 'fixed4 sliced(8,4) sliced(8,4,low)'
  odmoe bench expert --tokens 1 --format 'q4_k grouped4-fp16-g128-z'`,
    )
    .action(async (flags: BenchExpertFlags) => {
      const figures = await run.withEnergy(() => measure(flags));
      run.print(snakeCaseKeys(figures), flags.json, () => `${asTable(figures)}\n`);
    });
}

async function measure(flags: BenchExpertFlags): Promise<ExpertFigure[]> {
  const { hidden, intermediate, tokens, format, milliseconds, threads } = flags;
  const enough = Math.ceil(BF16_BYTES / (3 * hidden * intermediate * 2));
  const experts = flags.experts > 0 ? flags.experts : enough;
  const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads, budgetBytes: 0 });
  try {
    const forms: ExpertForm[] = [{ format: 'bf16', upperAlone: false }, ...format.map(formOf)];
    const sizes = { hiddenSize: hidden, intermediateSize: intermediate, experts, forms, tokens, milliseconds };
    return (await measureExperts(device, sizes)).flatMap((speed) => figuresOf(speed, ['bf16', ...format]));
  } finally {
    device.dispose();
  }
}

function formOf(name: FormName): ExpertForm {
  return isBlockFormat(name) ? { format: name, upperAlone: false } : FORMS[name];
}

function figuresOf(speed: ExpertSpeed, names: readonly ExpertFigure['weights'][]): ExpertFigure[] {
  return names.map((weights, index) => {
    const form = speed.forms[index];
    assertInvariant(form !== undefined, 'every form that was requested is measured');
    return {
      weights,
      tokens: speed.tokens,
      gbS: rounded(form.bytesPerS / 1e9),
      gweightsS: rounded(form.weightsPerS / 1e9),
      readBandwidthGbS: rounded(speed.readBytesPerS / 1e9),
      readShare: rounded(form.bytesPerS / speed.readBytesPerS),
      speedupOverBf16: rounded(form.speedup),
    };
  });
}

function asTable(figures: readonly ExpertFigure[]): string {
  const columns = ['weights', 'tokens', 'GB/s', 'Gweights/s', 'read GB/s', 'share', 'speed-up over bf16'].map(
    (title, index) => ({
      title,
      align: index === 0 ? ('left' as const) : ('right' as const),
    }),
  );
  const rows = figures.map(({ weights, tokens, gbS, gweightsS, readBandwidthGbS, readShare, speedupOverBf16 }) => [
    weights,
    String(tokens),
    gbS.toFixed(2),
    gweightsS.toFixed(2),
    readBandwidthGbS.toFixed(2),
    `${(readShare * 100).toFixed(1)} %`,
    speedupOverBf16.toFixed(3),
  ]);
  return tableLines(columns, rows).join('\n');
}

/** Rounds to three decimals. */
function rounded(value: number): number {
  return Math.round(value * 1000) / 1000;
}

function parseSize(value: string): number {
  const number = parseWhole(value);
  if (number > 0) return number;
  throw new InvalidArgumentError('It must be 1 or more.');
}

function parseForms(value: string): FormName[] {
  return value.split(/\s+/).map((name) => {
    if (isBlockFormat(name)) return name;
    if (Object.hasOwn(FORMS, name)) return name as FormName;
    throw new InvalidArgumentError(`"${name}" is none of ${FORM_NAMES.join(' ')}.`);
  });
}

function parseTokens(value: string): Int32Array {
  return Int32Array.from(value.split(','), parseSize);
}
