import { logarithm } from '../../shared/base/arithmetic/elementary.js';
import type { ConfigReader } from './config-reader.js';
import type { RopeShape } from '../../shared/model/model-shape.js';
import { ropeShape, type RopeScaling, yarnMscale, type YarnScaling } from './rope-frequencies.js';

/** A family's defaults for its ropes. */
export interface RopeDefaults {
  /** rope_theta if config.json has none; null: config.json must have it. */
  theta: number | null;
  /** Dimensions of a head that could be rotated. */
  headDim: number;
  /** Share of the dimensions that is rotated if config.json gives none. */
  partialFactor?: number;
  /** Number of rotated dimensions if config.json gives no share; null: all. */
  rotaryDim?: number | null;
  /** Key of that number, for messages; rotary_dim if absent. */
  rotaryKey?: string;
  /** The rope's parameters if config.json has none. */
  parameters?: Readonly<Record<string, unknown>>;
}

export interface ReadRope {
  rope: RopeShape;
  /** Most positions for which the frequencies are made. */
  maxPositions: number;
  /** Factor of latent attention's scores: YaRN's mscale_all_dim. */
  mscaleAllDim: number;
}

/** Most dimensions of a rope. A larger number in a file is an error. */
const MOST_DIMENSIONS = 2048;
/** Largest error of a share that a double holds, with room. */
const ROUNDING = 1e-12;

/**
 * Reads the rope of a model. Older files have rope_theta, rope_scaling and partial_rotary_factor. Newer ones have rope_parameters, with one rope
 * inside for each kind of layer if the family has several (`kind`).
 */
export function readRope(config: ConfigReader, defaults: RopeDefaults, kind: string | null = null): ReadRope {
  const parameters = readParameters(config, defaults, kind);
  const theta = parameters.positiveOr(null, 'rope_theta') ?? defaults.theta;
  if (theta === null) throw config.corrupt('rope_theta is missing');
  // transformers takes null for the whole head.
  if ((defaults.partialFactor ?? 1) !== 1) parameters.notNull('partial_rotary_factor');
  const share = parameters.positiveOr(null, 'partial_rotary_factor') ?? defaults.partialFactor ?? 1;
  const type = readType(parameters);
  const dimensions = readDimensions(config, defaults, { type, share, given: parameters.has('partial_rotary_factor') });
  checkRope(config, theta, dimensions, share);
  checkPairs(config, dimensions, type === 'default' && share < 1 ? defaults.headDim : 0);
  const maxPositions = config.size('max_position_embeddings');
  const { scaling, lastPosition } = readScaling(type, parameters, { dimensions, share, maxPositions });
  const rope = ropeShape(theta, dimensions, scaling);
  if (rope.frequencies.some((frequency) => !Number.isFinite(frequency)) || !(rope.scale > 0 && rope.scale < Infinity)) {
    throw config.corrupt(`the rope of type ${JSON.stringify(type)} has frequencies that are no numbers`);
  }
  const mscaleAllDim =
    scaling.type === 'yarn' ? yarnMscale(scaling.factor, parameters.numberOr(null, 'mscale_all_dim') ?? 0) : 1;
  return { rope, maxPositions: Math.min(maxPositions, lastPosition), mscaleAllDim };
}

/** Keys of a rope that may stand beside the model's other keys. */
const KEYS_BESIDE = ['rope_theta', 'partial_rotary_factor', 'original_max_position_embeddings'] as const;

function readParameters(config: ConfigReader, defaults: RopeDefaults, kind: string | null): ConfigReader {
  const newer = config.within('rope_parameters');
  // A family with several ropes has no older form.
  const older = kind === null ? config.within('rope_scaling') : null;
  const beside = config.picked(...KEYS_BESIDE);
  if (older === null && newer === null) return beside.withFallbacks(defaults.parameters ?? {});
  if (kind === null) {
    // Ropes by kind of layer are refused here, because a family with one rope would read none of them.
    for (const parameters of [older, newer])
      parameters?.noObjects('one rope for all layers, whose keys stand in no object of their own');
    return beside.beside(older).beside(newer);
  }
  const ofKind = newer?.within(kind) ?? null;
  if (ofKind === null) throw config.corrupt(`rope_parameters.${kind} is missing, the rope of these layers`);
  return beside.beside(ofKind);
}

/** Other names of the same types. */
const SAME_TYPES: Readonly<Record<string, string>> = { mrope: 'default', su: 'longrope' };

/** Reads the type. Some files have both its older and its newer key. */
function readType(parameters: ConfigReader): string {
  const [newer, older] = (['rope_type', 'type'] as const).map((key) => {
    const type = parameters.textOr(null, key);
    return type === null ? null : (SAME_TYPES[type] ?? type);
  });
  if (newer && older && newer !== older) {
    throw parameters.corrupt(
      `rope_type is ${JSON.stringify(newer)} and type is ${JSON.stringify(older)}, which must agree`,
    );
  }
  return newer ?? older ?? 'default';
}

function readDimensions(
  config: ConfigReader,
  { headDim, rotaryDim, rotaryKey = 'rotary_dim' }: RopeDefaults,
  { type, share, given }: { type: string; share: number; given: boolean },
): number {
  if (type === 'proportional') return headDim;
  const byShare = Math.floor(headDim * share);
  if ((rotaryDim ?? null) === null) return byShare;
  // A share such as 62 / 94 may be rounded down, so that a little less than all dimensions is all of them, too.
  const rounded = Math.abs(headDim * share - (rotaryDim ?? 0)) < headDim * ROUNDING;
  if (given && byShare !== rotaryDim && !rounded) {
    throw config.corrupt(`partial_rotary_factor ${share} of ${headDim} dimensions is not ${rotaryKey} ${rotaryDim}`);
  }
  return rotaryDim ?? byShare;
}

function checkRope(config: ConfigReader, theta: number, dimensions: number, share: number): void {
  if (theta <= 1) throw config.corrupt(`rope_theta is ${theta}, expected more than 1`);
  if (share > 1) throw config.corrupt(`partial_rotary_factor is ${share}, expected at most 1`);
  if (dimensions > MOST_DIMENSIONS) {
    throw config.corrupt(`${dimensions} dimensions of a head are rotated, expected at most ${MOST_DIMENSIONS}`);
  }
}

/**
 * transformers rotates one dimension more than an odd number of them. `room`: dimensions of a head that has room for it; 0: an odd number is refused.
 */
function checkPairs(config: ConfigReader, dimensions: number, room: number): void {
  if (dimensions >= 1 && (dimensions % 2 === 0 || dimensions < room)) return;
  throw config.corrupt(`${dimensions} dimensions of a head are rotated, which is odd or none; they go in pairs`);
}

interface RopeContext {
  dimensions: number;
  share: number;
  maxPositions: number;
}

/** `lastPosition`: the context ends there, because other frequencies hold beyond it. */
interface ReadScaling {
  scaling: RopeScaling;
  lastPosition: number;
}

function readScaling(type: string, parameters: ConfigReader, context: RopeContext): ReadScaling {
  const unbounded = (scaling: RopeScaling): ReadScaling => ({ scaling, lastPosition: Infinity });
  switch (type) {
    case 'default':
      return unbounded({ type });
    case 'linear':
      return unbounded({ type, factor: requireNumber(parameters, type, 'factor') });
    case 'dynamic':
      return readDynamic(parameters, context);
    case 'yarn':
      return unbounded(readYarn(parameters, context));
    case 'llama3':
      return unbounded(readLlama3(parameters, context));
    case 'longrope':
      return readLongRope(parameters, context);
    case 'proportional': {
      const pairs = Math.floor((context.share * context.dimensions) / 2);
      return unbounded({ type, pairs, factor: parameters.positiveOr(null, 'factor') ?? 1 });
    }
    default:
      throw parameters.unsupported(
        'rope_type',
        type,
        'default, linear, dynamic, yarn, llama3, longrope or proportional',
      );
  }
}

/** Reads a number that this type of rope needs. */
function requireNumber(parameters: ConfigReader, type: string, key: string): number {
  const number = parameters.positiveOr(null, key);
  if (number === null) throw parameters.corrupt(`a rope of type ${type} needs ${key}, which is missing`);
  return number;
}

/**
 * Dynamic scaling. With alpha the frequencies are fixed. Without it they change beyond the length for which the model was made, so the context
 * ends there.
 */
function readDynamic(parameters: ConfigReader, { dimensions, maxPositions }: RopeContext): ReadScaling {
  const alpha = parameters.numberOr(null, 'alpha') ?? 0;
  if (alpha > 0 && dimensions > 2) {
    // Some files have these keys for YaRN; here they must have no effect.
    for (const key of ['mscale', 'mscale_all_dim']) parameters.only(key, [0, 1], 1);
    return { scaling: { type: 'alpha', alpha }, lastPosition: Infinity };
  }
  requireNumber(parameters, 'dynamic', 'factor');
  const original = parameters.sizeOr(maxPositions, 'original_max_position_embeddings');
  return { scaling: { type: 'default' }, lastPosition: original };
}

function readLlama3(parameters: ConfigReader, { maxPositions }: RopeContext): RopeScaling {
  const lowFrequencyFactor = requireNumber(parameters, 'llama3', 'low_freq_factor');
  const highFrequencyFactor = requireNumber(parameters, 'llama3', 'high_freq_factor');
  if (lowFrequencyFactor >= highFrequencyFactor) {
    throw parameters.corrupt(
      `low_freq_factor ${lowFrequencyFactor} is not below high_freq_factor ${highFrequencyFactor}`,
    );
  }
  return {
    type: 'llama3',
    factor: requireNumber(parameters, 'llama3', 'factor'),
    lowFrequencyFactor,
    highFrequencyFactor,
    originalPositions: parameters.sizeOr(maxPositions, 'original_max_position_embeddings'),
  };
}

function readYarn(parameters: ConfigReader, { maxPositions }: RopeContext): YarnScaling {
  const originalPositions = parameters.sizeOr(maxPositions, 'original_max_position_embeddings');
  // null means the ratio of the context to the original length. An absent factor could be any number, so it is refused.
  const factor = parameters.isNull('factor')
    ? maxPositions / originalPositions
    : requireNumber(parameters, 'yarn', 'factor');
  const mscale = parameters.numberOr(null, 'mscale') ?? 0;
  const mscaleAllDim = parameters.numberOr(null, 'mscale_all_dim') ?? 0;
  const scale =
    mscale !== 0 && mscaleAllDim !== 0
      ? yarnMscale(factor, mscale) / yarnMscale(factor, mscaleAllDim)
      : yarnMscale(factor, 1);
  const yarn = {
    betaFast: parameters.positiveOr(null, 'beta_fast') ?? 32,
    betaSlow: parameters.positiveOr(null, 'beta_slow') ?? 1,
    truncate: parameters.flagOr(true, 'truncate'),
    scale: parameters.positiveOr(null, 'attention_factor') ?? scale,
  };
  return { type: 'yarn', factor, originalPositions, ...yarn };
}

/** One set of factors is used throughout, because keys in a cache cannot be rotated again: the short factors, unless a long context is requested. */
function readLongRope(parameters: ConfigReader, { dimensions, maxPositions }: RopeContext): ReadScaling {
  const original = parameters.sizeOr(null, 'original_max_position_embeddings');
  const { longContext } = parameters.context;
  const short = readFactors(parameters, 'short_factor', dimensions);
  const long = readFactors(parameters, 'long_factor', dimensions);
  const positions = original ?? maxPositions;
  const factor = parameters.positiveOr(null, 'factor') ?? maxPositions / positions;
  const scale = factor <= 1 || positions <= 1 ? 1 : Math.sqrt(1 + logarithm(factor) / logarithm(positions));
  const usual = parameters.positiveOr(null, 'attention_factor') ?? scale;
  const shortScale = parameters.positiveOr(null, 'short_mscale') ?? usual;
  const longScale = parameters.positiveOr(null, 'long_mscale') ?? usual;
  const [factors, ownScale, lastPosition] = longContext
    ? ([long, longScale, Infinity] as const)
    : ([short, shortScale, positions] as const);
  return { scaling: { type: 'longrope', factors, scale: ownScale }, lastPosition };
}

function readFactors(parameters: ConfigReader, key: string, dimensions: number): number[] {
  const factors = parameters.numbersOr(null, key) ?? [];
  if (factors.length === dimensions / 2 && factors.every((factor) => factor > 0)) return factors;
  throw parameters.corrupt(
    `${key} of the rope has ${factors.length} factors, expected ${dimensions / 2} numbers above 0`,
  );
}
