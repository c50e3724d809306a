/** The tables `quality` and `theta`: what each variant of table 1, and DBSC, do to the predictions of a model. */
import { loadDenseWeights } from '../../engine/loading/load-weights.js';
import { openDevice, type Device, type Model } from '../../native/index.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { requirePresent } from '../../shared/base/errors/assert-invariant.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { isCritical, thresholdOfShare } from '../../shared/decisions/slices/critical-executions.js';
import { otherChoiceProblem } from '../../shared/decisions/slices/output-weights.js';
import type { ModelSource } from '../../shared/model/tensor-source.js';
import { predictionOf, QualitySums, type Prediction, type QualityFigures } from './compare-logits.js';
import type { ExpertMatrixValues } from './expert-matrices.js';
import { ForcedPasses, type ChoosePrecision, type PassExperts } from './forced-passes.js';
import { measureMisses, type MissesRow } from './measure-misses.js';
import { SLICED_FORMS, VARIANTS, type SlicedForm } from './measure-slices.js';
import { qualityRecords, type QualityRecord } from './quality-records.js';
import type { QuantizedVariant } from './quantize-group.js';
import { loadVariant, LOSSLESS, readExperts, type VariantExperts } from './variant-experts.js';

export interface QualityRow extends QualityFigures {
  table: 'quality';
  variant: string;
}

export interface ThetaRow {
  table: 'theta';
  pair: string;
  theta: number;
  /** The share of executions that read both slices. */
  critical: number;
  kl: number;
}

/** Shares of critical executions whose threshold is measured, and compared with a random and with an inverse choice of as many. */
export const CRITICAL_SHARES: readonly number[] = [0.1, 0.3, 0.5];

/** Further thresholds, for the curve. */
const THRESHOLDS: readonly number[] = [0.4, 0.6, 0.7, 0.8, 0.9];

/** For figure 8: records, and the share of critical executions. */
const FIGURE8_RECORDS = 40;
const FIGURE8_CRITICAL_SHARE = 0.3;

const SEED = 1;

export interface QualityOptions {
  /** The first so many records beside the checkpoint. */
  readonly records: number;
  readonly variants: readonly QuantizedVariant[];
  /** Forms that DBSC is measured with. */
  readonly forms: readonly SlicedForm[];
  /** Gets the variant that is measured next. */
  readonly onProgress: (variant: string) => void;
}

/** All of table 1. */
export const ALL_VARIANTS: Pick<QualityOptions, 'variants' | 'forms'> = { variants: VARIANTS, forms: SLICED_FORMS };

/** Measures the variants, after the lossless model; no rows where the checkpoint has no records. @throws the errors of loading a model */
export async function measureQuality(
  directory: string,
  { records: count, variants, forms, onProgress }: QualityOptions,
): Promise<(QualityRow | ThetaRow | MissesRow)[]> {
  const source = await openModelSource(directory);
  const records = await qualityRecords(source, count);
  if (records === null) return [];
  const device = openDevice({ backend: 'cpu', instructionSet: 'auto', threads: 0, budgetBytes: 0 });
  const model = device.createModel(source.shape);
  try {
    await loadDenseWeights(model, source, 'shipped');
    const matrices = await readExperts(source);
    const measurer = new QualityMeasurer({ device, source, matrices, model, records, onProgress });
    const rows: (QualityRow | ThetaRow | MissesRow)[] = [await measurer.measureLossless()];
    for (const variant of variants) rows.push(await measurer.measureVariant(variant));
    for (const form of forms) rows.push(...(await measurer.measureCritical(form)));
    if (otherChoiceProblem(source.shape) === null) {
      for (const form of forms.slice(0, 1)) rows.push(...(await measurer.measureMisses(form)));
    }
    return rows;
  } finally {
    model.dispose();
    device.dispose();
  }
}

interface QualityMaterial {
  readonly device: Device;
  readonly source: ModelSource;
  readonly matrices: readonly ExpertMatrixValues[];
  readonly model: Model;
  readonly records: readonly QualityRecord[];
  readonly onProgress: (variant: string) => void;
}

class QualityMeasurer {
  private readonly passes: ForcedPasses;
  /** By record and token. */
  private readonly lossless: Prediction[][] = [];
  /** The renormalized weights of all executions of the lossless passes. */
  private renormalized = new Float32Array(0);

  constructor(private readonly material: QualityMaterial) {
    this.passes = new ForcedPasses(material.model, material.records);
  }

  /** Comes first: the others are compared with it. */
  async measureLossless(): Promise<QualityRow> {
    const weights: Float32Array[] = [];
    return await this.withVariant(LOSSLESS, async (high) => {
      await this.passes.run(
        { high, mixed: null },
        {
          predicted: (record, index, logits) => {
            (this.lossless[record] ??= [])[index] = predictionOf(logits);
          },
          routed: (renormalized) => weights.push(renormalized),
        },
      );
      this.renormalized = Float32Array.from(weights.flatMap((some) => [...some]));
      return await this.measure(LOSSLESS.name, { high, mixed: null });
    });
  }

  async measureVariant(variant: QuantizedVariant): Promise<QualityRow> {
    return await this.withVariant(variant, async (high) => this.measure(variant.name, { high, mixed: null }));
  }

  /** DBSC: critical executions read both slices, the others the middle of what the upper slice says. */
  async measureCritical({ pair, name }: SlicedForm): Promise<(QualityRow | ThetaRow)[]> {
    const rows: (QualityRow | ThetaRow)[] = [];
    await this.withVariant(variantNamed(`asym${pair.high}`), async (high) =>
      this.withVariant(variantNamed(`centred${name}`), async (low) => {
        const dbsc = async (theta: number, kind: string, choose: ChoosePrecision): Promise<number> => {
          const counts = { all: 0, high: 0 };
          const experts = { high, mixed: { low, choose: counted(choose, counts) } };
          const row = await this.measure(`dbsc${name} theta=${shortest(theta)}${kind}`, experts);
          rows.push(row);
          const critical = counts.high / counts.all;
          if (kind === '') rows.push({ table: 'theta', pair: name, theta: shortest(theta), critical, kl: row.kl });
          return critical;
        };
        const gate = (theta: number): ChoosePrecision => ofEach((weight) => isCritical(weight, theta));
        for (const wanted of CRITICAL_SHARES) {
          const { theta } = thresholdOfShare(this.renormalized, wanted);
          const share = await dbsc(theta, '', gate(theta));
          const random = new SeededRandom(SEED).fork(`${name} ${wanted}`);
          await dbsc(
            theta,
            ' random',
            ofEach(() => random.chance(share)),
          );
          const ceiling = -thresholdOfShare(
            this.renormalized.map((weight) => -weight),
            share,
          ).theta;
          await dbsc(
            theta,
            ' inverse',
            ofEach((weight) => weight <= ceiling),
          );
        }
        for (const theta of THRESHOLDS.map(Math.fround)) await dbsc(theta, '', gate(theta));
      }),
    );
    return rows;
  }

  /** Figure 8, on the first records. It takes as long as many variants, so it is measured with one form. */
  async measureMisses({ pair, name }: SlicedForm): Promise<MissesRow[]> {
    const { theta } = thresholdOfShare(this.renormalized, FIGURE8_CRITICAL_SHARE);
    const { model, records, onProgress } = this.material;
    return await this.withVariant(variantNamed(`asym${pair.high}`), async (high) =>
      this.withVariant(variantNamed(`centred${name}`), async (low) => {
        const some = records.slice(0, FIGURE8_RECORDS);
        const material = { model, records: some, lossless: this.lossless, pair, slots: { high, low }, theta };
        return measureMisses(material, (policy) => onProgress(`${policy}, ${name}`));
      }),
    );
  }

  private async withVariant<T>(variant: QuantizedVariant, work: (experts: VariantExperts) => Promise<T>): Promise<T> {
    const { device, source, matrices } = this.material;
    const experts = await loadVariant(device, source, matrices, variant, this.passes.maxRows);
    try {
      return await work(experts);
    } finally {
      experts.dispose();
    }
  }

  private async measure(variant: string, experts: PassExperts): Promise<QualityRow> {
    this.material.onProgress(variant);
    const { records } = this.material;
    const sums = new QualitySums();
    await this.passes.run(experts, {
      predicted: (number, index, logits) => {
        const record = requirePresent(records[number], 'a pass runs known records.');
        const lossless = requirePresent(this.lossless[number]?.[index], 'the lossless passes ran first.');
        const token = requirePresent(record.tokenIds[index + 1], 'the last token of a record does not run.');
        sums.add(number, token, index + 1 >= record.answerFrom, { lossless, variant: predictionOf(logits) });
      },
    });
    return { table: 'quality', variant, ...sums.figures(records.length) };
  }
}

function variantNamed(name: string): QuantizedVariant {
  return requirePresent(
    VARIANTS.find((variant) => variant.name === name),
    () => `there is a variant ${name}.`,
  );
}

function ofEach(isHigh: (weight: number) => boolean): ChoosePrecision {
  return (renormalized) => Array.from(renormalized, isHigh);
}

function counted(choose: ChoosePrecision, counts: { all: number; high: number }): ChoosePrecision {
  return (renormalized) => {
    const chosen = choose(renormalized);
    counts.all += chosen.length;
    counts.high += chosen.filter((isHigh) => isHigh).length;
    return chosen;
  };
}

/** The shortest decimal number that stands for an FP32 number: at most 9 digits. */
function shortest(value: number): number {
  for (let digits = 1; digits < 9; digits += 1) {
    const rounded = Number(value.toPrecision(digits));
    if (Math.fround(rounded) === value) return rounded;
  }
  return Number(value.toPrecision(9));
}
