import { InvalidArgumentError, type Command } from 'commander';
import { parseWhole } from '../../cli/client/generation-flags.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { THREADS_LIMIT } from '../../shared/settings/setting-limits.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { tableLines } from '../../cli/output/table.js';
import { measureContexts, type ContextFigures } from './measure-contexts.js';
import { MACHINE_MS, measureGenerate, type GenerateBenchRound, type MeasuredWeightForm } from './measure-generate.js';
import type { MeasuredRun } from '../history/measured-run.js';

interface BenchGenerateFlags {
  tokens: number;
  prompt: number;
  rounds: number;
  threads: number;
  prefillRows: number;
  resident: MeasuredWeightForm[];
  contexts?: number[];
  json: boolean;
}

/** Adds `odmoe bench generate`. */
export function registerBenchGenerate(bench: Command, run: MeasuredRun): void {
  bench
    .command('generate')
    .description('speed of the single-process engine, beside what the machine gives in the same run')
    .argument('<model>', 'a pack, or a Hugging Face checkpoint directory')
    .option('--tokens <n>', 'tokens to decode', parseAnswerTokens, 64)
    .option('--prompt <n>', 'tokens to prefill', parsePositive, 128)
    .option('--rounds <n>', 'rounds of machine and engine', parsePositive, 5)
    .option('--threads <n>', 'threads to compute with (0: as many as there are)', wholeNumberFlag(0, THREADS_LIMIT), 0)
    .option('--prefill-rows <n>', 'rows of one prefill pass', parsePositive, 256)
    .option('--resident <formats>', 'compare engines: bf16,fixed4 (default: one, as shipped)', parseResidents, [null])
    .option('--contexts <list>', 'measure at these numbers of positions instead, such as 128,4096,32768', parseContexts)
    .option('--json', 'print one JSON object and nothing else', false)
    .addHelpText(
      'after',
      `
Decode is given as a share of the memory read bandwidth (bytes of all weights that a token meets, and of the KV cache), prefill
as a share of the FP32 fused multiply-add peak; both are measured in each round. Medians count. Joules of a decoded token, and of the
whole run, come from this machine's counters, where it has some that can be read (RAPL, the INA3221 of a Jetson, nvidia-smi); they
hold all that ran meanwhile, and are no modelled figures.

--resident bf16,fixed4 loads the model once in each form and lets them take turns in every round; "decode speed-up" is the median
over the rounds of the last one's decode speed divided by the first one's. --json then gives {"engines": [{"resident", "median",
"rounds"}], "decode_speedup"}.

--contexts fills each context once, which times its prefill. Then all contexts decode --tokens tokens in turns, round by round. The model
must have the positions (odmoe bench synth --context). --json then gives {"contexts": [...]}, with each round's decode figures. It goes
with one --resident at most, and without --prompt.

Examples:
  odmoe bench synth /tmp/mixtral-small
  odmoe bench generate /tmp/mixtral-small --prompt 128 --tokens 64
  odmoe bench generate /tmp/mixtral-small --contexts 128,4096 --tokens 16`,
    )
    .action(async (directory: string, flags: BenchGenerateFlags) => {
      if (flags.contexts !== undefined) return benchContexts(directory, flags.contexts, flags, run);
      const options = {
        residents: flags.resident,
        promptTokens: flags.prompt,
        answerTokens: flags.tokens,
        rounds: flags.rounds,
        threads: flags.threads,
        prefillRows: flags.prefillRows,
      };
      const engines = await run.withEnergy((meter) => measureGenerate(directory, options, meter));
      run.print(
        snakeCaseKeys({ ...asJson(engines, flags), energy: run.energy }),
        flags.json,
        () => `${asText(engines, flags)}\n`,
      );
    });
}

async function benchContexts(
  directory: string,
  contexts: number[],
  flags: BenchGenerateFlags,
  run: MeasuredRun,
): Promise<void> {
  const [resident = null, ...others] = flags.resident;
  if (others.length > 0) throw new OdmoeError('USAGE', '--contexts measures one engine; give --resident one format');
  const { tokens: answerTokens, rounds, threads, prefillRows } = flags;
  const options = { contexts, resident, answerTokens, rounds, threads, prefillRows, machineMs: MACHINE_MS };
  const measured = await run.withEnergy((meter) => measureContexts(directory, options, meter));
  run.print(
    snakeCaseKeys({ contexts: measured, energy: run.energy }),
    flags.json,
    () => `${contextsTable(measured)}\n`,
  );
}

/** A table of medians over the rounds. */
function contextsTable(contexts: readonly ContextFigures[]): string {
  const titles = [
    'context',
    'prefill tok/s',
    'prefill GFLOP/s',
    'share',
    'decode tok/s',
    'decode GB/s',
    'share',
    'J/tok',
  ];
  const columns = titles.map((title) => ({ title, align: 'right' as const }));
  const rows = contexts.map((figures) => [
    String(figures.context),
    figures.prefillTokensPerS.toFixed(1),
    billions(figures.prefillFlopPerS),
    percent(figures.prefillShare),
    middle(figures.decodeTokensPerS).toFixed(2),
    billions(middle(figures.decodeBytesPerS)),
    percent(middle(figures.decodeShare)),
    joules(middleMeasured(figures.decodeJoulesPerToken)),
  ]);
  return tableLines(columns, rows).join('\n');
}

type EngineRounds = readonly (readonly GenerateBenchRound[])[];

function asJson(engines: EngineRounds, { resident }: BenchGenerateFlags): Record<string, unknown> {
  const one = (rounds: readonly GenerateBenchRound[]): Record<string, unknown> => ({ median: median(rounds), rounds });
  if (engines.length === 1) return one(engines[0] ?? []);
  return {
    engines: engines.map((rounds, index) => ({ resident: resident[index], ...one(rounds) })),
    decodeSpeedup: decodeSpeedup(engines),
  };
}

function asText(engines: EngineRounds, { resident }: BenchGenerateFlags): string {
  if (engines.length === 1) return asTable(engines[0] ?? []);
  const tables = engines.map((rounds, index) => `${resident[index]}\n${asTable(rounds)}\n`);
  return `${tables.join('\n')}\ndecode speed-up: ${decodeSpeedup(engines).toFixed(3)}`;
}

/** Speed of the last engine relative to the first, as the median over the rounds. */
function decodeSpeedup(engines: EngineRounds): number {
  const [first = [], last = []] = [engines[0], engines.at(-1)];
  return middle(last.map((round, index) => round.decodeTokensPerS / (first[index]?.decodeTokensPerS ?? 0)));
}

function asTable(rounds: readonly GenerateBenchRound[]): string {
  const columns = [
    'round',
    'read GB/s',
    'decode tok/s',
    'decode GB/s',
    'share',
    'J/tok',
    'FMA GFLOP/s',
    'prefill tok/s',
    'prefill GFLOP/s',
    'share',
  ].map((title) => ({ title, align: 'right' as const }));
  const rows = rounds.map((round, index) => [String(index + 1), ...cells(round)]);
  return tableLines(columns, [...rows, ['median', ...cells(median(rounds))]]).join('\n');
}

function cells(round: GenerateBenchRound): string[] {
  return [
    billions(round.readBytesPerS),
    round.decodeTokensPerS.toFixed(2),
    billions(round.decodeBytesPerS),
    percent(round.decodeShare),
    joules(round.decodeJoulesPerToken),
    billions(round.fmaFlopPerS),
    round.prefillTokensPerS.toFixed(1),
    billions(round.prefillFlopPerS),
    percent(round.prefillShare),
  ];
}

const billions = (value: number): string => (value / 1e9).toFixed(2);
const joules = (value: number | null): string => value?.toPrecision(4) ?? '-';
const percent = (share: number): string => `${(share * 100).toFixed(1)} %`;

/** The median of each figure by itself. */
function median(rounds: readonly GenerateBenchRound[]): GenerateBenchRound {
  const of = (figure: Exclude<keyof GenerateBenchRound, 'decodeJoulesPerToken'>): number =>
    middle(rounds.map((round) => round[figure]));
  return {
    readBytesPerS: of('readBytesPerS'),
    fmaFlopPerS: of('fmaFlopPerS'),
    decodeTokensPerS: of('decodeTokensPerS'),
    decodeBytesPerS: of('decodeBytesPerS'),
    prefillTokensPerS: of('prefillTokensPerS'),
    prefillFlopPerS: of('prefillFlopPerS'),
    decodeShare: of('decodeShare'),
    prefillShare: of('prefillShare'),
    decodeJoulesPerToken: middleMeasured(rounds.map(({ decodeJoulesPerToken }) => decodeJoulesPerToken)),
  };
}

function middle(values: readonly number[]): number {
  return [...values].sort((left, right) => left - right)[Math.floor(values.length / 2)] ?? 0;
}

/** Null: no round was measured. */
function middleMeasured(values: readonly (number | null)[]): number | null {
  const measured = values.filter((value) => value !== null);
  return measured.length === 0 ? null : middle(measured);
}

function parseResidents(value: string): MeasuredWeightForm[] {
  return value.split(',').map((name) => {
    if (name === 'bf16' || name === 'fixed4') return name;
    throw new InvalidArgumentError('It must be bf16, fixed4, or both with a comma between.');
  });
}

function parseContexts(value: string): number[] {
  return value.split(',').map(parsePositive);
}

function parsePositive(value: string): number {
  const number = parseWhole(value);
  if (number > 0) return number;
  throw new InvalidArgumentError('It must be 1 or more.');
}

/** At least 2, because TPOT needs a second token. */
function parseAnswerTokens(value: string): number {
  const number = parsePositive(value);
  if (number > 1) return number;
  throw new InvalidArgumentError('It must be 2 or more.');
}
