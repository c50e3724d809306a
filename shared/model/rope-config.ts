import { logarithm } from '../arithmetic/elementary.js';
import type { ConfigReader } from './config-reader.js';
import type { RopeShape } from './model-shape.js';
import { ropeShape, type RopeScaling, yarnMscale } from './rope-frequencies.js';

/** What a family says of its ropes. */
export interface RopeDefaults {
  /** Where config.json gives no rope_theta; null: it must. */
  theta: number | null;
  /** Dimensions of a head that could be rotated. */
  headDim: number;
  /** What share of them is, where config.json does not say. */
  partialFactor?: number;
  /** How many are, where config.json gives no share. */
  rotaryDim?: number;
  /** The rope's parameters where config.json has none. */
  parameters?: Readonly<Record<string, unknown>>;
}

export interface ReadRope {
  rope: RopeShape;
  /** Positions that its frequencies are made for. */
  maxPositions: number;
  /** By what latent attention multiplies its scores: YaRN's mscale_all_dim. */
  mscaleAllDim: number;
}

/** A rope of more pairs than this is a lie. */
const MOST_DIMENSIONS = 2048;

/**
 * The rope of a model: older files have rope_theta, rope_scaling and partial_rotary_factor, newer ones rope_parameters, which may have
 * ropes by kind of layer inside.
 */
export function readRope(config: ConfigReader, defaults: RopeDefaults, kind: string | null = null): ReadRope {
  const parameters = readParameters(config, defaults, kind);
  const theta = parameters.positiveOr(defaults.theta, 'rope_theta');
  if (theta === null) throw config.corrupt('rope_theta is missing');
  const share = parameters.positiveOr(defaults.partialFactor ?? 1, 'partial_rotary_factor');
  const type = parameters.textOr('default', 'rope_type', 'type');
  const rotated = parameters.has('partial_rotary_factor') ? null : (defaults.rotaryDim ?? null);
  const dimensions = type === 'proportional' ? defaults.headDim : (rotated ?? Math.floor(defaults.headDim * share));
  checkRope(config, theta, dimensions, share);
  const maxPositions = config.size('max_position_embeddings');
  const { scaling, lastPosition } = readScaling(type, parameters, { dimensions, share, maxPositions });
  const rope = ropeShape(theta, dimensions, scaling);
  if (rope.frequencies.some((frequency) => !Number.isFinite(frequency)) || !(rope.scale > 0 && rope.scale < Infinity)) {
    throw config.corrupt(`the rope of type ${JSON.stringify(type)} has frequencies that are no numbers`);
  }
  const mscaleAllDim =
    scaling.type === 'yarn' ? yarnMscale(scaling.factor, parameters.numberOr(0, 'mscale_all_dim')) : 1;
  return { rope, maxPositions: Math.min(maxPositions, lastPosition), mscaleAllDim };
}

function readParameters(config: ConfigReader, defaults: RopeDefaults, kind: string | null): ConfigReader {
  const older = config.within('rope_scaling');
  const newer = config.within('rope_parameters');
  if (older === null && newer === null) return config.withFallbacks(defaults.parameters ?? {});
  return config.overlaid(older).overlaid(newer?.within(kind ?? '') ?? newer);
}

function checkRope(config: ConfigReader, theta: number, dimensions: number, share: number): void {
  if (theta <= 1) throw config.corrupt(`rope_theta is ${theta}, expected more than 1`);
  if (share > 1) throw config.corrupt(`partial_rotary_factor is ${share}, expected at most 1`);
  if (dimensions % 2 !== 0 || dimensions < 2) {
    throw config.corrupt(`${dimensions} dimensions of a head are rotated, which is odd or none; they go in pairs`);
  }
  if (dimensions > MOST_DIMENSIONS) {
    throw config.corrupt(`${dimensions} dimensions of a head are rotated, expected at most ${MOST_DIMENSIONS}`);
  }
}

interface RopeContext {
  dimensions: number;
  share: number;
  maxPositions: number;
}

/** `lastPosition`: the context ends there, as other frequencies count beyond. */
interface ReadScaling {
  scaling: RopeScaling;
  lastPosition: number;
}

function readScaling(type: string, parameters: ConfigReader, context: RopeContext): ReadScaling {
  const unbounded = (scaling: RopeScaling): ReadScaling => ({ scaling, lastPosition: Infinity });
  const factor = (): number => parameters.positiveOr(1, 'factor');
  switch (type) {
    case 'default':
    case 'mrope':
      return unbounded({ type: 'default' });
    case 'linear':
      return unbounded({ type: 'linear', factor: factor() });
    case 'dynamic':
      return readDynamic(parameters, context);
    case 'yarn':
      return unbounded(readYarn(parameters, context));
    case 'llama3':
      return unbounded(readLlama3(parameters, context));
    case 'longrope':
    case 'su':
      return readLongRope(parameters, context);
    case 'proportional': {
      const pairs = Math.floor((context.share * context.dimensions) / 2);
      return unbounded({ type: 'proportional', pairs, factor: factor() });
    }
    default:
      throw parameters.unsupported(
        'rope_type',
        type,
        'default, linear, dynamic, yarn, llama3, longrope or proportional',
      );
  }
}

/** With alpha the frequencies are fixed. Without it they change beyond the length that the model was made for, where the context ends. */
function readDynamic(parameters: ConfigReader, { dimensions, maxPositions }: RopeContext): ReadScaling {
  const alpha = parameters.numberOr(0, 'alpha');
  if (alpha > 0 && dimensions > 2) return { scaling: { type: 'alpha', alpha }, lastPosition: Infinity };
  const original = parameters.sizeOr(maxPositions, 'original_max_position_embeddings');
  return { scaling: { type: 'default' }, lastPosition: original };
}

function readLlama3(parameters: ConfigReader, { maxPositions }: RopeContext): RopeScaling {
  const lowFrequencyFactor = parameters.positiveOr(1, 'low_freq_factor');
  const highFrequencyFactor = parameters.positiveOr(4, 'high_freq_factor');
  if (lowFrequencyFactor >= highFrequencyFactor) {
    throw parameters.corrupt(
      `low_freq_factor ${lowFrequencyFactor} is not below high_freq_factor ${highFrequencyFactor}`,
    );
  }
  const originalPositions = parameters.sizeOr(maxPositions, 'original_max_position_embeddings');
  return {
    type: 'llama3',
    factor: parameters.positiveOr(1, 'factor'),
    lowFrequencyFactor,
    highFrequencyFactor,
    originalPositions,
  };
}

function readYarn(parameters: ConfigReader, { maxPositions }: RopeContext): RopeScaling {
  const originalPositions = parameters.sizeOr(maxPositions, 'original_max_position_embeddings');
  const factor = parameters.positiveOr(maxPositions / originalPositions, 'factor');
  const mscale = parameters.numberOr(0, 'mscale');
  const mscaleAllDim = parameters.numberOr(0, 'mscale_all_dim');
  const scale =
    mscale !== 0 && mscaleAllDim !== 0
      ? yarnMscale(factor, mscale) / yarnMscale(factor, mscaleAllDim)
      : yarnMscale(factor, 1);
  const yarn = {
    betaFast: parameters.positiveOr(32, 'beta_fast'),
    betaSlow: parameters.positiveOr(1, 'beta_slow'),
    truncate: parameters.flagOr(true, 'truncate'),
    scale: parameters.positiveOr(scale, 'attention_factor'),
  };
  return { type: 'yarn', factor, originalPositions, ...yarn };
}

/** One set of factors is fixed, because keys in a cache cannot be rotated again: the short ones, unless a long context is asked for. */
function readLongRope(parameters: ConfigReader, { dimensions, maxPositions }: RopeContext): ReadScaling {
  const original = parameters.sizeOr(null, 'original_max_position_embeddings');
  const long = parameters.context.longContext;
  const key = long ? 'long_factor' : 'short_factor';
  const factors = parameters.numbersOr(null, key);
  if (factors?.length !== dimensions / 2 || factors.some((factor) => factor <= 0)) {
    throw parameters.corrupt(
      `${key} of the rope has ${factors?.length ?? 0} factors, expected ${dimensions / 2} numbers above 0`,
    );
  }
  const factor = original === null ? parameters.positiveOr(1, 'factor') : maxPositions / original;
  const positions = original ?? maxPositions;
  const scale = factor <= 1 || positions <= 1 ? 1 : Math.sqrt(1 + logarithm(factor) / logarithm(positions));
  const ownScale = parameters.positiveOr(scale, long ? 'long_mscale' : 'short_mscale', 'attention_factor');
  return { scaling: { type: 'longrope', factors, scale: ownScale }, lastPosition: long ? Infinity : positions };
}
