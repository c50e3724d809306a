/** Figures and tables of FluxMoE (sections 2, 4 and 6), each measured on the virtual clock. */
import { measureLayout, measureServing, type ServingFigures, serverLoadOf } from './measure-serving.js';
import { layoutOf, type ServingSystem } from './expert-layout.js';
import { cell, type Figure, type FigureCell, type FigureResult } from './figure-cells.js';
import { PAPER } from './paper-column.js';
import { adaptationFigure, residencyCurve } from './residency-figures.js';
import type { ServerModel, ServerProfile } from './server-profile.js';
import { ServerWork } from './server-work.js';
import { gaussianValues } from '../codec/measure-codecs.js';

const GIB = 1024 ** 3;
const BATCHES = [32, 64, 128, 256] as const;
const CONTEXTS = [1024, 2048, 4096] as const;

/** Measures one figure. Throws the error of a profile that does not fit its models. */
export async function measureFigure(figure: Figure, profile: ServerProfile): Promise<FigureResult> {
  switch (figure) {
    case 'table1':
      return table1(profile);
    case 'figure2':
      return figure2(profile);
    case 'figure5':
      return figure5();
    case 'figure6':
      return residencyCurve(profile);
    case 'figure7':
      return figure7(profile);
    case 'figure8':
      return figure8(profile);
    case 'figure9':
      return adaptationFigure(profile);
    case 'figure10':
      return figure10(profile);
  }
}

/** Table 1: memory of weights. */
function table1({ performance, capacity, gpu, costs, denseModels }: ServerProfile): FigureResult {
  const dense = denseModels.map(({ name, parameters }) => ({ name, gb: (parameters * costs.weightBytes) / 1e9 }));
  const sparse = [capacity, performance].map((model) => {
    return { name: model.name, gb: new ServerWork(model, gpu, costs).weightBytes / 1e9 };
  });
  const paper: Readonly<Record<string, number>> = PAPER.table1;
  return {
    cells: [...dense, ...sparse].map(({ name, gb }) =>
      cell('table1', `${name}: weights`, 'GB', gb, paper[name] ?? null),
    ),
    orders: [],
  };
}

/** Figure 2: throughput by memory for keys and values, with all experts resident. */
async function figure2(profile: ServerProfile): Promise<FigureResult> {
  const { cache: model, gpu, costs } = profile;
  const work = new ServerWork(model, gpu, costs);
  const at = async (gib: number, batch: number, context: number): Promise<number> => {
    const load = serverLoadOf(profile, { batch, context });
    return (await measureLayout(work, layoutOf('resident', work), load, gib * GIB)).tokensPerS;
  };
  const cells: FigureCell[] = [];
  const rates: number[] = [];
  for (const gib of [20, 40, 60]) {
    rates.push(await at(gib, 128, 4096));
    cells.push(
      cell('figure2', `keys and values have ${gib} GiB: batch 128, context 4096`, 'tokens/s', rates.at(-1) ?? 0),
    );
  }
  const short = [await at(20, 128, 1024), await at(60, 128, 1024)];
  const [small = 0, , large = 0] = rates;
  const { moreCache, longContextSmallCache } = PAPER.figure2;
  cells.push(cell('figure2', '60 GiB over 20 GiB, batch 128', 'ratio', large / small, moreCache));
  const ofShort = small / (short[0] ?? 1);
  cells.push(cell('figure2', '20 GiB: context 4096 over 1024', 'ratio', ofShort, longContextSmallCache));
  cells.push(cell('figure2', '60 GiB: context 4096 over 1024', 'ratio', large / (short[1] ?? 1)));
  return {
    cells,
    orders: [
      { figure: 'figure2', what: 'more memory for keys and values, more tokens', holds: small < large },
      { figure: 'figure2', what: 'long contexts lose less with more memory', holds: large / (short[1] ?? 1) > ofShort },
    ],
  };
}

/** Figure 5: bits of exponents and mantissas. */
function figure5(): FigureResult {
  const { exponentBits, mantissaBits, storedShare } = weightStatistics();
  return {
    cells: [
      cell('figure5', 'entropy of the exponents (8 bits)', 'bits', exponentBits),
      cell('figure5', 'entropy of the mantissas (7 bits)', 'bits', mantissaBits),
      cell(
        'figure5',
        'stored bytes over plain ones, exponents in their entropy',
        'ratio',
        storedShare,
        PAPER.figure5.storedShare,
      ),
    ],
    orders: [
      {
        figure: 'figure5',
        what: 'exponents are concentrated, mantissas are not',
        holds: exponentBits < mantissaBits / 2,
      },
    ],
  };
}

type Rates = Map<string, ServingFigures>;

async function measureGrid(
  profile: ServerProfile,
  model: ServerModel,
  systems: readonly ServingSystem[],
  points: readonly (readonly [number, number])[],
): Promise<{ rates: Rates; rate: (system: ServingSystem, batch: number, context: number) => number }> {
  const rates: Rates = new Map();
  for (const [batch, context] of points) {
    for (const system of systems) {
      rates.set(`${system} ${batch} ${context}`, await measureServing(profile, { model, batch, context }, system));
    }
  }
  return { rates, rate: (system, batch, context) => rates.get(`${system} ${batch} ${context}`)?.tokensPerS ?? 0 };
}

function rateCells(figure: Figure, rates: Rates): FigureCell[] {
  return [...rates].map(([key, { tokensPerS }]) => {
    const [system, batch, context] = key.split(' ');
    return cell(figure, `${system}: batch ${batch}, context ${context}`, 'tokens/s', tokensPerS);
  });
}

/** Experiment 1: everything fits. */
async function figure7(profile: ServerProfile): Promise<FigureResult> {
  const points = [...BATCHES.map((batch) => [batch, 4096] as const), [256, 1024] as const, [256, 2048] as const];
  const systems = ['resident', 'offload', 'compressed'] as const;
  const { rates, rate } = await measureGrid(profile, profile.performance, systems, points);
  const paper = PAPER.figure7;
  const of = (over: ServingSystem, under: ServingSystem, batch: number): number =>
    rate(over, batch, 4096) / rate(under, batch, 4096);
  const falls = (system: ServingSystem): number => rate(system, 256, 4096) / rate(system, 256, 1024);
  const from128 = rate('resident', 256, 4096) / rate('resident', 128, 4096);
  const ratio = (what: string, ours: number, ofPaper: number, calibrated = false): FigureCell =>
    cell('figure7', what, 'ratio', ours, ofPaper, calibrated);
  const offloadAt32 = rate('offload', 32, 4096);
  return {
    cells: [
      ...rateCells('figure7', rates),
      cell('figure7', 'offload at batch 32', 'tokens/s', offloadAt32, paper.offloadTokensPerSAt32, true),
      ratio('resident over offload, batch 32', of('resident', 'offload', 32), paper.residentOfOffloadAt32, true),
      ratio(
        'compressed over resident, batch 32',
        of('compressed', 'resident', 32),
        paper.compressedOfResidentAt32,
        true,
      ),
      ratio('resident: batch 256 over 128', from128, paper.residentFrom128To256, true),
      ratio('compressed over resident, batch 256', of('compressed', 'resident', 256), paper.compressedOfResidentAt256),
      ratio('compressed over offload, batch 256', of('compressed', 'offload', 256), paper.compressedOfOffloadAt256),
      ratio('resident over offload, batch 256', of('resident', 'offload', 256), paper.residentOfOffloadAt256),
      ratio('resident, batch 256: context 4096 over 1024', falls('resident'), paper.residentFrom1024To4096),
      ratio('compressed, batch 256: context 4096 over 1024', falls('compressed'), paper.compressedFrom1024To4096, true),
    ],
    orders: [
      {
        figure: 'figure7',
        what: 'batch 32: resident before compressed before offload',
        holds: isRising(['offload', 'compressed', 'resident'].map((system) => rate(system as ServingSystem, 32, 4096))),
      },
      {
        figure: 'figure7',
        what: 'batch 256: compressed before resident before offload',
        holds: isRising(
          ['offload', 'resident', 'compressed'].map((system) => rate(system as ServingSystem, 256, 4096)),
        ),
      },
      { figure: 'figure7', what: 'resident is slower with batch 256 than with 128', holds: from128 < 1 },
      {
        figure: 'figure7',
        what: 'compressed and offload gain with every batch',
        holds: (['compressed', 'offload'] as const).every((system) =>
          isRising(BATCHES.map((batch) => rate(system, batch, 4096))),
        ),
      },
    ],
  };
}

/** Experiment 2: not everything fits. */
async function figure8(profile: ServerProfile): Promise<FigureResult> {
  const points = [
    ...BATCHES.map((batch) => [batch, 4096] as const),
    ...CONTEXTS.slice(0, 2).map((context) => [256, context] as const),
  ];
  const systems = ['offload', 'layers', 'divided'] as const;
  const { rates, rate } = await measureGrid(profile, profile.capacity, systems, points);
  const gain = (context: number): number => rate('divided', 256, context) / rate('layers', 256, context);
  const { dividedOfLayersAt1024, dividedOfLayersAt4096, offloadTokensPerS } = PAPER.figure8;
  return {
    cells: [
      ...rateCells('figure8', rates),
      cell('figure8', 'divided over layers, batch 256, context 1024', 'ratio', gain(1024), dividedOfLayersAt1024),
      cell('figure8', 'divided over layers, batch 256, context 4096', 'ratio', gain(4096), dividedOfLayersAt4096),
      cell(
        'figure8',
        'offload, batch 256, context 4096',
        'tokens/s',
        rate('offload', 256, 4096),
        offloadTokensPerS,
        true,
      ),
    ],
    orders: [
      {
        figure: 'figure8',
        what: 'divided before layers before offload, at every point',
        holds: points.every(([batch, context]) => isRising(systems.map((system) => rate(system, batch, context)))),
      },
      { figure: 'figure8', what: 'divided gains less over layers with long contexts', holds: gain(4096) < gain(1024) },
    ],
  };
}

/** Experiment 4: all experts plain, streamed through the window, compared with computing and swapping alone. */
async function figure10(profile: ServerProfile): Promise<FigureResult> {
  const points = BATCHES.map((batch) => [batch, 4096] as const);
  const { rates } = await measureGrid(profile, profile.performance, ['resident'], points);
  const least = Math.min(...[...rates.values()].map(({ passMs, computeMs, swapMs }) => (computeMs + swapMs) / passMs));
  const what = 'all plain, through the window, over computing alone, least';
  return { cells: [cell('figure10', what, 'ratio', least, PAPER.figure10.leastOfResident)], orders: [] };
}

function isRising(values: readonly number[]): boolean {
  return values.every((value, index) => index === 0 || value > (values[index - 1] ?? Infinity));
}

/** Bytes of weights in the sample. */
const SAMPLE_BYTES = 4 * 1024 ** 2;
const VALUE_BITS = 16;
const MANTISSA_BITS = 7;
const EXPONENT_MASK = 0xff;
const MANTISSA_MASK = 0x7f;

interface WeightStatistics {
  /** Entropies of a weight's exponent and mantissa. */
  exponentBits: number;
  mantissaBits: number;
  /** Size relative to plain BF16 if exponents take their entropy (no code takes less). */
  storedShare: number;
}

/** Statistics of normally distributed BF16 weights, which stand for trained weights. */
function weightStatistics(): WeightStatistics {
  const { values } = gaussianValues(SAMPLE_BYTES);
  const exponents = new Array<number>(EXPONENT_MASK + 1).fill(0);
  const mantissas = new Array<number>(MANTISSA_MASK + 1).fill(0);
  const view = new DataView(values.buffer, values.byteOffset, values.byteLength);
  for (let offset = 0; offset < values.byteLength; offset += 2) {
    const bits = view.getUint16(offset, true);
    const exponent = (bits >> MANTISSA_BITS) & EXPONENT_MASK;
    const mantissa = bits & MANTISSA_MASK;
    exponents[exponent] = (exponents[exponent] ?? 0) + 1;
    mantissas[mantissa] = (mantissas[mantissa] ?? 0) + 1;
  }
  const exponentBits = entropy(exponents);
  const storedShare = (VALUE_BITS - 8 + exponentBits) / VALUE_BITS;
  return { exponentBits, mantissaBits: entropy(mantissas), storedShare };
}

function entropy(counts: readonly number[]): number {
  const all = counts.reduce((sum, count) => sum + count, 0);
  return counts.reduce((bits, count) => (count === 0 ? bits : bits - (count / all) * Math.log2(count / all)), 0);
}
