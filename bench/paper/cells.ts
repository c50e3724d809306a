import type { Measure, Measurement, Range } from './measurement.js';
import { AUTO_PRECISIONS } from '../../shared/decisions/slices/choose-shadow-form.js';
import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import { paperSetUp, PAPER_SET_UP, type CachedMachine, type SetUp } from './set-up.js';
import { speedBySource, type SourceRow } from './sources.js';

/** One number of the paper, with ours. */
export interface Cell {
  table: PaperTable;
  row: string;
  column: string;
  /** Null: the paper has only a drawing and no number. */
  paper: number | null;
  /** Mean over the prompts; null: not measured. */
  measured: number | null;
  /** Lowest and highest value among the prompts; null: not measured per prompt. */
  range: Range | null;
  /** The simulator's value; null: it has none. */
  simulated: number | null;
  /** True: the profile's free constants were fitted to this cell. */
  calibrated: boolean;
  /** True: no constant was fitted, but the set-up's behaviour here was chosen to explain it (docs/testbed.md, "What is calibrated"). */
  structureFitted: boolean;
}

/** An order that the paper reports, best first. */
export interface OrderCheck {
  table: PaperTable;
  expected: string;
  measured: string;
  holds: boolean;
}

/** One line of the ablation table. */
export interface PastRow {
  setUp: string;
  decodeTokensPerS: number;
  /** Lowest and highest value among the prompts. */
  range: Range;
  simulatedTokensPerS: number | null;
  ttftMs: number;
  /** Decode speed relative to the FP32 machine that holds the whole model and makes no drafts, as the paper compares. */
  overFullyCached: number;
  /** True: a machine that holds the whole model, with which others are compared. */
  wholeModel: boolean;
  recall: number | null;
  acceptance: number | null;
  /** True: every answer has the same tokens as with the paper's set-up. */
  tokensEqual: boolean;
}

/** A shadow of some precision, in one set-up. */
export interface ShadowRow {
  precision: ShadowPrecision;
  setUp: string;
  decodeTokensPerS: number;
  /** Lowest and highest value among the prompts. */
  range: Range;
  simulatedTokensPerS: number | null;
  /** Time of one row of the shadow. */
  shadowTokenMs: number | null;
  shadowMemoryBytes: number | null;
  recall: number | null;
  acceptance: number | null;
}

export interface TableResult {
  cells: Cell[];
  orders: OrderCheck[];
  past: PastRow[];
  shadows: ShadowRow[];
  sources: SourceRow[];
}

/** Tables of any pack. */
export const USUAL_TABLES = ['table2', 'figure8', 'figure9', 'figure10', 'past', 'shadows'] as const;
/** `sources` needs a pack with trained maps. */
export const PAPER_TABLES = [...USUAL_TABLES, 'sources'] as const;
export type PaperTable = (typeof PAPER_TABLES)[number];

const DECODE = 'decode tokens/s';
const TTFT = 'TTFT ms';
const OUTPUT = 'output tokens/s';
const MEMORY = 'device memory GB';
const LENGTHS = [
  [16, 64],
  [16, 256],
  [128, 64],
  [128, 256],
] as const;
/** Figures 8 to 10 are for this configuration (section 4.2). */
const INPUT_TOKENS = 16;
const OUTPUT_TOKENS = 256;
const BYTES_PER_GB = 1e9;
/** Speeds whose relative difference is smaller count as equal. */
const ORDER_TOLERANCE = 0.005;

/** Table 2 of the paper, columns "Transformer" and "OD-MoE"; values in the order of LENGTHS. */
const TABLE_2 = {
  'fully cached': {
    [TTFT]: [385.52, 386.86, 447.43, 448.16],
    [DECODE]: [4.9, 4.87, 4.9, 4.89],
    [OUTPUT]: [4.84, 4.86, 4.81, 4.86],
    memoryGb: 180,
  },
  'OD-MoE': {
    [TTFT]: [1349.78, 1340.89, 3150.87, 3135.85],
    [DECODE]: [3.67, 3.65, 3.74, 3.71],
    [OUTPUT]: [3.41, 3.54, 3.09, 3.44],
    memoryGb: 60,
  },
} as const;
type Table2Row = keyof typeof TABLE_2;

/** The cells to which the constants of bench/profiles/rtx3090-testbed.yaml were fitted: parts of the fully cached row, one cell of OD-MoE. */
const CALIBRATED: ReadonlySet<string> = new Set([
  `fully cached ${DECODE} (16, 256)`,
  `fully cached ${TTFT} (16, 256)`,
  `OD-MoE ${DECODE} (16, 256)`,
]);

/** Section 4.2: the six cases of figure 8. */
const CASES: readonly [string, SetUp][] = [
  ['1 token and KV alignment', PAPER_SET_UP],
  ['2 token alignment only', paperSetUp({ alignKeyValuePeriod: 0 })],
  ['3 KV alignment only', paperSetUp({ alignTokenPeriod: 0 })],
  ['4 no alignment', paperSetUp({ alignTokenPeriod: 0, alignKeyValuePeriod: 0 })],
  ['5 random prefetch', paperSetUp({ prediction: 'random' })],
  ['6 no prediction', paperSetUp({ prediction: 'off' })],
];

/** OD-MoE's prefill runs in steps, on cards that either send or receive at a time. */
const STRUCTURE_FITTED = `OD-MoE ${TTFT}`;

/** Periods of token and KV alignment; all pairs are measured. */
const PERIODS = [1, 2, 4, 8, 16];
const KEY_VALUE_PERIODS = [1, 2, 4, 8, 16, 32];

/** Each step beyond the paper alone, then all together. Experts stored as fixed4 leave room for a second slot in the same memory. */
const PACKED: Partial<SetUp> = { expertStorage: 'fixed4' };
const DRAFTING: Partial<SetUp> = { streamKeyValues: true, optimistic: true, draftRows: 'auto', spread: 'all' };
const ALL_TOGETHER = paperSetUp({ ...DRAFTING, ...PACKED, prefillOverlap: true, slots: 2 });
const PAST: readonly [string, SetUp][] = [
  ["paper's set-up", PAPER_SET_UP],
  ['streamed KV', paperSetUp({ streamKeyValues: true })],
  ['optimistic', paperSetUp({ optimistic: true })],
  ['drafts, dealt to all workers', paperSetUp({ draftRows: 'auto' })],
  ['spread over all workers', paperSetUp({ spread: 'all' })],
  ['packed loads', paperSetUp(PACKED)],
  ['packed loads, 2 slots', paperSetUp({ ...PACKED, slots: 2 })],
  ['prefill overlapped', paperSetUp({ prefillOverlap: true })],
  ['all together', ALL_TOGETHER],
];

/** Two set-ups: only recall and the shadow's own time count in the first one, and its guesses of tokens, too, in the second. */
const SHADOWED: readonly [string, SetUp][] = [
  ["paper's set-up", PAPER_SET_UP],
  ['all together', ALL_TOGETHER],
];

/** Experts in flight at a time: as many as a layer of the model has. */
const WHOLE_SLOTS = 8;

/**
 * Machines that hold the whole model: the paper's, one in BF16, and two with a shadow whose drafts they verify. The latter have a worker
 * beside main in one box: its link and network take no time, so every expert is ready at once.
 */
const WHOLE_MODEL: readonly [string, SetUp | CachedMachine][] = [
  ['fully cached', 'cached'],
  ['fully cached, BF16', 'cached-bf16'],
  ['fully cached, drafts', wholeWithDrafts('rtx3090-whole-fp32', 'fp32')],
  ['fully cached, BF16, drafts', wholeWithDrafts('rtx3090-whole-bf16', 'bf16')],
];
function wholeWithDrafts(profile: string, expertStorage: SetUp['expertStorage']): SetUp {
  return paperSetUp({
    ...DRAFTING,
    profile,
    expertStorage,
    workers: 1,
    prefillOverlap: true,
    slots: WHOLE_SLOTS,
  });
}

const NOTHING: TableResult = { cells: [], orders: [], past: [], shadows: [], sources: [] };

/** Measures the cells of a table or figure of the paper, or of a table beside them. */
export async function measureTable(table: PaperTable, measure: Measure): Promise<TableResult> {
  switch (table) {
    case 'table2':
      return { ...NOTHING, cells: await table2(measure) };
    case 'figure8':
      return figure8(measure);
    case 'figure9':
      return figure9(measure);
    case 'figure10':
      return figure10(measure);
    case 'past':
      return { ...NOTHING, past: await pastThePaper(measure) };
    case 'shadows':
      return { ...NOTHING, shadows: await shadowsByPrecision(measure) };
    case 'sources':
      return { ...NOTHING, sources: await speedBySource(measure, INPUT_TOKENS, OUTPUT_TOKENS) };
  }
}

type Values = Pick<Cell, 'measured' | 'range' | 'simulated'>;

function decodeValues({ decodeTokensPerS, decodeRange, simulated }: Measurement): Values {
  return { measured: decodeTokensPerS, range: decodeRange, simulated: simulated?.decodeTokensPerS ?? null };
}

function onlyMeasured(measured: number | null): Values {
  return { measured, range: null, simulated: null };
}

async function table2(measure: Measure): Promise<Cell[]> {
  const cells: Cell[] = [];
  const rows: [Table2Row, SetUp | CachedMachine][] = [
    ['fully cached', 'cached'],
    ['OD-MoE', PAPER_SET_UP],
  ];
  for (const [row, setUp] of rows) {
    const cell = (column: string, paper: number | null, values: Values): Cell => {
      const name = `${row} ${column}`;
      const fitted = { calibrated: CALIBRATED.has(name), structureFitted: name.startsWith(STRUCTURE_FITTED) };
      return { table: 'table2', row, column, paper, ...values, ...fitted };
    };
    let memoryBytes = 0;
    for (const [index, [input, output]] of LENGTHS.entries()) {
      const measured = await measure(setUp, input, output);
      const longest = Math.max(...measured.tokenIds.map((tokenIds) => tokenIds.length));
      const lengths = longest === output ? `(${input}, ${output})` : `(${input}, ${output}) cut to ${longest}`;
      const paper = TABLE_2[row];
      const { simulated } = measured;
      cells.push(cell(`${DECODE} ${lengths}`, paper[DECODE][index] ?? null, decodeValues(measured)));
      const ttft = { measured: measured.ttftMs, range: measured.ttftRangeMs, simulated: simulated?.ttftMs ?? null };
      cells.push(cell(`${TTFT} ${lengths}`, paper[TTFT][index] ?? null, ttft));
      // In a shortened answer, the first token has another share of the time.
      const whole = measured.tokenIds.every((tokenIds) => tokenIds.length === output);
      const outputTokensPerS = whole ? measured.outputTokensPerS : null;
      cells.push(cell(`${OUTPUT} ${lengths}`, paper[OUTPUT][index] ?? null, onlyMeasured(outputTokensPerS)));
      memoryBytes = Math.max(memoryBytes, measured.memoryBytes);
    }
    cells.push(cell(MEMORY, TABLE_2[row].memoryGb, onlyMeasured(memoryBytes / BYTES_PER_GB)));
  }
  return cells;
}

async function figure8(measure: Measure): Promise<TableResult> {
  const cells = await decodeCells('figure8', CASES, measure);
  const names = CASES.map(([name]) => name.charAt(0));
  const measured = [...cells].sort(fastestFirst).map(({ row }) => row.charAt(0));
  const holds = cells.every((cell, index) => isNoSlower(cell, cells[index + 1]));
  const order = { table: 'figure8', expected: names.join(' > '), measured: measured.join(' > '), holds } as const;
  return { ...NOTHING, cells, orders: [order] };
}

/** Compares two cells; differences between two measurements of one set-up are tolerated. */
function isNoSlower(cell: Cell, other: Cell | undefined): boolean {
  return (cell.measured ?? 0) >= (other?.measured ?? 0) * (1 - ORDER_TOLERANCE);
}

async function figure9(measure: Measure): Promise<TableResult> {
  const pairs = PERIODS.flatMap((token) => PERIODS.map((keyValue) => [token, keyValue] as const));
  const setUps = pairs.map(([token, keyValue]): [string, SetUp] => [
    `T${token}_KV${keyValue}`,
    paperSetUp({ alignTokenPeriod: token, alignKeyValuePeriod: keyValue }),
  ]);
  return withBest('figure9', await decodeCells('figure9', setUps, measure), 'T1_KV1');
}

async function figure10(measure: Measure): Promise<TableResult> {
  const setUps = KEY_VALUE_PERIODS.map((period): [string, SetUp] => [
    `T1_KV${period}`,
    paperSetUp({ profile: 'rtx3080-workers', alignKeyValuePeriod: period }),
  ]);
  return withBest('figure10', await decodeCells('figure10', setUps, measure), 'T1_KV4');
}

async function decodeCells(table: PaperTable, setUps: readonly [string, SetUp][], measure: Measure): Promise<Cell[]> {
  const cells: Cell[] = [];
  for (const [row, setUp] of setUps) {
    const values = decodeValues(await measure(setUp, INPUT_TOKENS, OUTPUT_TOKENS));
    cells.push({ table, row, column: DECODE, paper: null, ...values, calibrated: false, structureFitted: false });
  }
  return cells;
}

function fastestFirst(left: Cell, right: Cell): number {
  return (right.measured ?? 0) - (left.measured ?? 0);
}

function withBest(table: PaperTable, cells: Cell[], best: string): TableResult {
  const measured = [...cells].sort(fastestFirst)[0]?.row ?? '';
  const expected = cells.find(({ row }) => row === best);
  const holds = expected !== undefined && cells.every((cell) => isNoSlower(expected, cell));
  const order = { table, expected: `${best} is best`, measured: `${measured} is best`, holds };
  return { ...NOTHING, cells, orders: [order] };
}

async function pastThePaper(measure: Measure): Promise<PastRow[]> {
  const cached = await measure('cached', INPUT_TOKENS, OUTPUT_TOKENS);
  const baseline = await measure(PAPER_SET_UP, INPUT_TOKENS, OUTPUT_TOKENS);
  const rows: PastRow[] = [];
  for (const [name, setUp] of [...WHOLE_MODEL, ...PAST]) {
    const measured = await measure(setUp, INPUT_TOKENS, OUTPUT_TOKENS);
    const wholeModel = WHOLE_MODEL.some(([whole]) => whole === name);
    rows.push({ ...pastRow(name, measured, cached, baseline), wholeModel });
  }
  return rows;
}

function pastRow(
  name: string,
  measured: Measurement,
  cached: Measurement,
  baseline: Measurement,
): Omit<PastRow, 'wholeModel'> {
  const { decodeTokensPerS, decodeRange, simulated, ttftMs, recall, acceptance, tokenIds } = measured;
  return {
    setUp: name,
    decodeTokensPerS,
    range: decodeRange,
    simulatedTokensPerS: simulated?.decodeTokensPerS ?? null,
    ttftMs,
    overFullyCached: decodeTokensPerS / cached.decodeTokensPerS,
    recall,
    acceptance,
    tokensEqual: JSON.stringify(tokenIds) === JSON.stringify(baseline.tokenIds),
  };
}

/** Each precision that a shadow may be given by `shadow.precision: auto`, in both set-ups. */
async function shadowsByPrecision(measure: Measure): Promise<ShadowRow[]> {
  const rows: ShadowRow[] = [];
  for (const precision of AUTO_PRECISIONS) {
    for (const [name, setUp] of SHADOWED) {
      const measured = await measure({ ...setUp, shadowPrecision: precision }, INPUT_TOKENS, OUTPUT_TOKENS);
      const { decodeTokensPerS, decodeRange, simulated, shadowTokenMs, shadowMemoryBytes, recall, acceptance } =
        measured;
      rows.push({
        precision,
        setUp: name,
        decodeTokensPerS,
        range: decodeRange,
        simulatedTokensPerS: simulated?.decodeTokensPerS ?? null,
        shadowTokenMs,
        shadowMemoryBytes,
        recall,
        acceptance,
      });
    }
  }
  return rows;
}

/** Decode speed of the fastest cluster relative to a machine that holds the whole model. */
export interface Headline {
  cluster: string;
  machine: string;
  ratio: number;
}

/** The fastest cluster compared with each machine that holds the whole model; empty if `past` was not measured. */
export function likeWithLike({ past }: Pick<TableResult, 'past'>): Headline[] {
  const [fastest] = past
    .filter(({ wholeModel }) => !wholeModel)
    .sort((left, right) => right.decodeTokensPerS - left.decodeTokensPerS);
  if (fastest === undefined) return [];
  return past
    .filter(({ wholeModel }) => wholeModel)
    .map(({ setUp, decodeTokensPerS }) => ({
      cluster: fastest.setUp,
      machine: setUp,
      ratio: fastest.decodeTokensPerS / decodeTokensPerS,
    }));
}

/** Decode speed of the fastest cluster relative to the paper's fully cached machine; null if either was not measured. */
export function bestDecodeOverFullyCached({ cells, past }: Pick<TableResult, 'cells' | 'past'>): number | null {
  const ofPast = past.filter(({ wholeModel }) => !wholeModel).map(({ overFullyCached }) => overFullyCached);
  const column = `${DECODE} (${INPUT_TOKENS}, ${OUTPUT_TOKENS})`;
  const ofTable = (row: Table2Row): number | null =>
    cells.find((cell) => cell.table === 'table2' && cell.row === row && cell.column === column)?.measured ?? null;
  const cached = ofTable('fully cached');
  const distributed = ofTable('OD-MoE');
  const ratios = cached === null || distributed === null ? ofPast : [...ofPast, distributed / cached];
  return ratios.length === 0 ? null : Math.max(...ratios);
}
