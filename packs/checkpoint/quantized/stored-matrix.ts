import { assertInvariant } from '../../../shared/base/errors/assert-invariant.js';
import { type BlockFormat, type GroupScale, groupedName } from '../../../shared/model/block-formats.js';
import type { StoredForm } from '../../../shared/model/tensor-source.js';
import type { WeightScheme } from '../../model-config/weight-scheme.js';
import type { CheckpointTensor } from '../../model-config/checkpoint-tensor.js';
import type { MatrixSize, QuantizedModule } from './quantized-module.js';

/** A quantized matrix as its file holds it. */
export interface StoredMatrix {
  /** The split in whose planes it is read. fp8-tile stands for FP8 in blocks. */
  split: 'mxfp4' | 'fp8' | BlockFormat;
  /** Null: its tensors are the planes of the split. */
  form: Exclude<StoredForm, string>['form'] | null;
  /** Rows with the same scales. */
  scaleBlockRows: number;
  /** Its tensors, by plane. */
  planes: ReadonlyMap<number, CheckpointTensor>;
}

const GROUP_SCALES: Readonly<Record<string, GroupScale>> = { BF16: 'bf16', F16: 'fp16', F32: 'fp32' };
const SCALE_DTYPES = Object.keys(GROUP_SCALES);
const FP8_FORMS = { F32: null, BF16: 'fp8-bf16', F16: 'fp8-fp16', F8_E8M0: 'fp8-e8m0' } as const;
const FP8_SCALE_DTYPES = Object.keys(FP8_FORMS);
/** DeepSeek-V4 has the last one. */
const FP8_SCALE_PARTS = ['weight_scale', 'weight_scale_inv', 'scale'] as const;
const FP8_BLOCK = 128;

/** Most columns whose order rows can hold (16 bits each). */
const ORDER_LIMIT = 65_536;

/**
 * The matrix of a module by the tensors that it has; null: it is not quantized. The forms are those of compressed-tensors, ModelOpt,
 * AutoAWQ, GPTQModel and DeepSeek-V4.
 * @throws MODEL_CORRUPT, MODEL_UNSUPPORTED
 */
export function readStoredMatrix(module: QuantizedModule, weight: CheckpointTensor | null): StoredMatrix | null {
  if (module.has('weight_packed')) return packedMatrix(module);
  if (module.has('qweight')) return wordsMatrix(module);
  const dtype = weight?.dtype;
  if (dtype === 'F8_E4M3') return fp8Matrix(module);
  if (dtype === 'I8' && module.has('scale')) return pairsMatrix(module);
  if (!module.has('weight_scale')) return null;
  if (dtype === 'U8') return nvfp4Matrix(module, 'weight', 'weight_scale_2');
  return dtype === 'I8' ? int8Matrix(module) : null;
}

function planesOf(...tensors: readonly (CheckpointTensor | null)[]): Map<number, CheckpointTensor> {
  return new Map(tensors.flatMap((tensor, plane) => (tensor === null ? [] : [[plane, tensor]])));
}

function canonical(split: StoredMatrix['split'], ...tensors: readonly CheckpointTensor[]): StoredMatrix {
  return { split, form: null, scaleBlockRows: 1, planes: planesOf(...tensors) };
}

function groupScale(scales: CheckpointTensor): GroupScale {
  const found = GROUP_SCALES[scales.dtype];
  assertInvariant(found !== undefined, () => `${scales.name} has scales of ${SCALE_DTYPES.join(', ')}`);
  return found;
}

function groupCount(columns: number, group: number): number {
  return group === 0 ? 1 : Math.ceil(columns / group);
}

/** compressed-tensors: whole numbers, MXFP4 or NVFP4, by the type of the codes and the scales that are there. */
function packedMatrix(module: QuantizedModule): StoredMatrix {
  const { rows, columns } = module.size;
  module.optional('weight_shape', ['I32', 'I64'], [2]);
  if (module.has('weight_global_scale')) return nvfp4Matrix(module, 'weight_packed', 'weight_global_scale');
  const packed = module.tensor('weight_packed', ['I32', 'U8'], ...packedShapes(rows, columns));
  if (packed.dtype === 'U8') {
    module.schemesOf('mxfp4');
    return mxfp4Matrix(module, { part: 'weight_packed', dtype: 'U8' }, 'weight_scale');
  }
  const bits = packed.shape[1] === Math.ceil((columns * 8) / 32) ? 8 : 4;
  const scheme = chosenPacking(module, bits);
  if ((columns * bits) % 32 !== 0) {
    throw module.unsupported(`have ${columns} columns of ${bits} bits, which fill no whole number of words`);
  }
  const codes = module.tensor('weight_packed', ['I32'], [rows, (columns * bits) / 32]);
  const groups = groupCount(columns, scheme.group);
  const scales = module.tensor('weight_scale', SCALE_DTYPES, [rows, groups]);
  const zeros = scheme.symmetric
    ? null
    : module.tensor('weight_zero_point', ['I32'], [Math.ceil((rows * bits) / 32), groups]);
  const order = columnOrder(module, 'weight_g_idx', scheme);
  const split = groupedSplit(module, scheme, scales);
  if (zeros === null && order === null) return canonical(split, codes, scales);
  return { split, form: 'pack-quantized', scaleBlockRows: 1, planes: planesOf(codes, scales, zeros, order) };
}

/** Shapes of codes in words of 4 and 8 bits, and of pairs of codes in bytes. */
function packedShapes(rows: number, columns: number): number[][] {
  return [
    [rows, Math.ceil((columns * 4) / 32)],
    [rows, Math.ceil((columns * 8) / 32)],
    [rows, columns / 2],
  ];
}

type Packing = Extract<WeightScheme, { kind: 'packed' }>;

/** The scheme, of those that config.json names, that fits the module's zero points and scales. */
function chosenPacking(module: QuantizedModule, bits: 4 | 8): Packing {
  const { columns, rows } = module.size;
  const symmetric = !module.has('weight_zero_point');
  const all = module.schemesOf('packed').filter((scheme) => scheme.bits === bits && scheme.symmetric === symmetric);
  const [first] = all;
  if (first === undefined) {
    throw module.contradiction(
      `are codes of ${bits} bits ${symmetric ? 'without' : 'with'} zero points, and config.json has no such group of modules`,
    );
  }
  const widths = all.map(({ group }) => [rows, groupCount(columns, group)]);
  const scales = module.tensor('weight_scale', SCALE_DTYPES, ...widths);
  return all[widths.findIndex((shape) => shape.join() === scales.shape.join())] ?? first;
}

interface GroupedScheme {
  bits: 4 | 8;
  group: number;
  symmetric: boolean;
  reordered: boolean;
}

/** Columns of several groups stand in an order of their own. */
function isReordered(
  { columns }: MatrixSize,
  { group, reordered }: Pick<GroupedScheme, 'group' | 'reordered'>,
): boolean {
  return reordered && groupCount(columns, group) > 1;
}

/** The group of each column; null: there is none, and the columns are in order. @throws MODEL_CORRUPT if it is missing and is needed */
function columnOrder(
  module: QuantizedModule,
  part: 'weight_g_idx' | 'g_idx',
  scheme: Pick<GroupedScheme, 'group' | 'reordered'>,
): CheckpointTensor | null {
  const { columns } = module.size;
  if (!module.has(part) && !isReordered(module.size, scheme)) return null;
  return module.tensor(part, ['I32'], [columns]);
}

function groupedSplit(module: QuantizedModule, scheme: GroupedScheme, scales: CheckpointTensor): BlockFormat {
  const { rows, columns } = module.size;
  const reordered = isReordered(module.size, scheme);
  if (reordered && (columns % scheme.group !== 0 || columns > ORDER_LIMIT)) {
    throw module.unsupported(`have ${columns} columns in an order of their own, in groups of ${scheme.group}`);
  }
  return groupedName({
    bits: scheme.bits,
    scales: groupScale(scales),
    zeros: !scheme.symmetric,
    group: scheme.group,
    orderBytes: reordered ? Math.ceil((2 * columns) / rows) : 0,
  });
}

function nvfp4Matrix(
  module: QuantizedModule,
  codePart: 'weight' | 'weight_packed',
  scalePart: 'weight_scale_2' | 'weight_global_scale',
): StoredMatrix {
  const { rows, columns } = module.size;
  const wanted = scalePart === 'weight_scale_2' ? 'multiplied' : 'divided';
  if (!module.schemesOf('nvfp4').some(({ matrixScale }) => matrixScale === wanted)) {
    throw module.contradiction(`have ${scalePart}, which is not what the quant_method of config.json writes`);
  }
  if (columns % 16 !== 0) throw module.unsupported(`have ${columns} columns as NVFP4, no multiple of 16`);
  const codes = module.tensor(codePart, ['U8'], [rows, columns / 2]);
  const scales = module.tensor('weight_scale', ['F8_E4M3'], [rows, columns / 16]);
  const matrixScale = module.tensor(scalePart, ['F32'], [], [1]);
  return { split: `nvfp4-${wanted}`, form: 'nvfp4', scaleBlockRows: 1, planes: planesOf(codes, scales, matrixScale) };
}

function fp8Matrix(module: QuantizedModule): StoredMatrix {
  const { rows, columns } = module.size;
  const codes = module.tensor('weight', ['F8_E4M3'], [rows, columns]);
  const part = FP8_SCALE_PARTS.find((name) => module.has(name)) ?? 'weight_scale_inv';
  // In a checkpoint with both forms the type of the scales says which it is.
  const isBytes = module.find(part)?.dtype === 'U8' || !module.hasScheme('fp8');
  if (module.hasScheme('mxfp8') && module.has(part) && isBytes) {
    if (columns % 32 !== 0) throw module.unsupported(`have ${columns} columns as MXFP8, no multiple of 32`);
    return canonical('mxfp8', codes, module.tensor(part, ['U8', 'F8_E8M0'], [rows, columns / 32]));
  }
  const blocks = [Math.ceil(rows / FP8_BLOCK), Math.ceil(columns / FP8_BLOCK)];
  const shapes: Readonly<Record<'block' | 'channel' | 'tensor', readonly (readonly number[])[]>> = {
    block: [blocks],
    channel: [[rows, 1], [rows]],
    tensor: [[], [1], [1, 1]],
  };
  const schemes = module.schemesOf('fp8');
  const scales = module.tensor(part, FP8_SCALE_DTYPES, ...schemes.flatMap((scheme) => shapes[scheme.scales]));
  const chosen = schemes.find((scheme) => shapes[scheme.scales].some((shape) => shape.join() === scales.shape.join()));
  assertInvariant(
    chosen !== undefined && scales.dtype in FP8_FORMS,
    () => `${scales.name} has a form that was checked`,
  );
  const form = FP8_FORMS[scales.dtype as keyof typeof FP8_FORMS];
  const scaleBlockRows = { block: FP8_BLOCK, channel: 1, tensor: rows }[chosen.scales];
  const split = chosen.scales === 'block' ? 'fp8-tile' : 'fp8-row';
  return { split, form, scaleBlockRows, planes: planesOf(codes, scales) };
}

/** DeepSeek-V4's experts: MXFP4 in a checkpoint that otherwise has FP8 in blocks. Only the tensors show which module is which. */
function pairsMatrix(module: QuantizedModule): StoredMatrix {
  module.schemesOf('fp8');
  return mxfp4Matrix(module, { part: 'weight', dtype: 'I8' }, 'scale');
}

function mxfp4Matrix(
  module: QuantizedModule,
  codes: { part: 'weight' | 'weight_packed'; dtype: 'I8' | 'U8' },
  scalePart: 'scale' | 'weight_scale',
): StoredMatrix {
  const { rows, columns } = module.size;
  if (columns % 32 !== 0) throw module.unsupported(`have ${columns} columns as MXFP4, no multiple of 32`);
  const scaleDtypes = codes.dtype === 'I8' ? ['F8_E8M0'] : ['U8', 'F8_E8M0'];
  return canonical(
    'mxfp4',
    module.tensor(codes.part, [codes.dtype], [rows, columns / 2]),
    module.tensor(scalePart, scaleDtypes, [rows, columns / 32]),
  );
}

function int8Matrix(module: QuantizedModule): StoredMatrix {
  const { rows, columns } = module.size;
  const schemes = module.schemesOf('int8');
  const codes = module.tensor('weight', ['I8'], [rows, columns]);
  const shapes: Readonly<Record<'channel' | 'tensor', readonly (readonly number[])[]>> = {
    channel: [[rows, 1], [rows]],
    tensor: [[], [1]],
  };
  const scales = module.tensor('weight_scale', SCALE_DTYPES, ...schemes.flatMap((scheme) => shapes[scheme.scales]));
  const whole = scales.shape.join() === '' || (scales.shape.join() === '1' && rows !== 1);
  const split = groupedName({ bits: 8, scales: groupScale(scales), zeros: false, group: 0, orderBytes: 0 });
  return { split, form: 'int8', scaleBlockRows: whole ? rows : 1, planes: planesOf(codes, scales) };
}

/** GPTQ and AWQ: codes in words, packed along the inputs or the outputs. */
function wordsMatrix(module: QuantizedModule): StoredMatrix {
  const { rows, columns } = module.size;
  const awq = module.hasScheme('awq');
  const scheme = awq ? { ...module.schemesOf('awq')[0], bits: 4 as const } : module.schemesOf('gptq')[0];
  const { bits, group } = scheme;
  const groups = groupCount(columns, group);
  if ((rows * bits) % 32 !== 0 || (!awq && (columns * bits) % 32 !== 0)) {
    throw module.unsupported(`are ${rows} x ${columns} codes of ${bits} bits, which fill no whole number of words`);
  }
  const codes = module.tensor('qweight', ['I32'], awq ? [columns, rows / 8] : [(columns * bits) / 32, rows]);
  const zeros = module.tensor('qzeros', ['I32'], [groups, (rows * bits) / 32]);
  const scales = module.tensor('scales', SCALE_DTYPES, [groups, rows]);
  if (scheme.kind === 'awq') {
    const split = groupedSplit(module, { bits, group, symmetric: false, reordered: false }, scales);
    return { split, form: 'awq', scaleBlockRows: 1, planes: planesOf(codes, scales, zeros) };
  }
  const order = columnOrder(module, 'g_idx', scheme);
  const split = groupedSplit(module, scheme, scales);
  const form = scheme.zeros === 'v1' ? 'gptq-v1' : 'gptq';
  return { split, form, scaleBlockRows: 1, planes: planesOf(codes, scales, zeros, order) };
}

/** The split of a part of FP8 in blocks: the four rows of a tile have equal scales. */
export function tileSplit(
  slice: { firstRow: number; blockRows: number; stepRows: number },
  rows: number,
): 'fp8-tile' | 'fp8' {
  const several = rows > slice.blockRows;
  const starts = several ? [slice.firstRow, slice.blockRows, slice.stepRows] : [slice.firstRow];
  return starts.every((row) => row % 4 === 0) ? 'fp8-tile' : 'fp8';
}
