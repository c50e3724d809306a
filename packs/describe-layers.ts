import type {
  AttentionMixer,
  GluShape,
  LatentMixer,
  LayerShape,
  MixerShape,
  ModelShape,
  PooledMixer,
  RouterShape,
} from '../shared/model/model-shape.js';

/** Layers of a model with equal properties, as text for people. */
export interface LayerKind {
  /** Their numbers among all layers. */
  layers: number[];
  mixer: string;
  /** The always part; null: none. */
  always: string | null;
  /** The rule that chooses experts; null: there are no experts. */
  routed: string | null;
}

/** The kinds of a model's layers, in the order of their first layers. */
export function layerKinds(shape: ModelShape): LayerKind[] {
  const kinds = new Map<string, LayerKind>();
  for (const [number, layer] of shape.layers.entries()) {
    const kind = kindOf(layer, shape);
    const key = JSON.stringify(kind);
    const known = kinds.get(key) ?? { layers: [], ...kind };
    known.layers.push(number);
    kinds.set(key, known);
  }
  return [...kinds.values()];
}

function kindOf({ mixer, always, routed }: LayerShape, shape: ModelShape): Omit<LayerKind, 'layers'> {
  return {
    mixer: describeMixer(mixer),
    always: always === null ? null : `${describeGlu(always.glu)}${always.gated ? ' with a gate' : ''}`,
    routed: routed === null ? null : describeRouter(routed, shape),
  };
}

function describeMixer(mixer: MixerShape): string {
  switch (mixer.kind) {
    case 'attention': {
      const window = mixer.window > 0 ? `, window ${mixer.window}` : '';
      const values = mixer.valueDim === undefined ? '' : `, values of ${mixer.valueDim}`;
      return `attention, ${mixer.heads} heads of ${mixer.headDim} (${mixer.keyValueHeads} key-value${values})${window}${describeBlocks(mixer)}`;
    }
    case 'latent':
      return `latent attention, ${mixer.heads} heads over ${mixer.latentSize} + ${mixer.ropeSize}${mixer.outputGate === true ? ', with gates' : ''}${describeIndexer(mixer)}`;
    case 'delta':
      return (
        `gated delta net, ${mixer.valueHeads} heads of ${mixer.valueDim} (${mixer.keyHeads} key heads of ${mixer.keyDim})` +
        (mixer.decayWidth === 'channel' ? ', a decay of each channel' : '')
      );
    case 'convolution':
      return `convolution of ${mixer.taps}`;
    case 'pooled':
      return `attention, ${mixer.heads} heads of ${mixer.headDim} (1 key-value), window ${mixer.window}${describePools(mixer)}`;
    case 'state-space':
      return `state space, ${mixer.heads} heads of ${mixer.headDim} (${mixer.groups} groups of ${mixer.stateSize})`;
  }
}

function describeBlocks({ blockIndexer }: AttentionMixer): string {
  if (blockIndexer === undefined) return '';
  const { blocks, blockSize, headDim } = blockIndexer;
  return `, at ${blocks} blocks of ${blockSize} positions by an indexer of ${headDim} dimensions`;
}

function describeIndexer({ indexer, sharesIndexer }: LatentMixer): string {
  if (sharesIndexer === true) return ', at the positions of the last indexer';
  if (indexer === undefined) return '';
  const { positions, poolPositions } = indexer;
  const seen = poolPositions === undefined ? '' : ` in pools of ${poolPositions}`;
  return `, at ${positions} positions${seen} by an indexer of ${indexer.heads} heads of ${indexer.headDim}`;
}

function describePools({ pools }: PooledMixer): string {
  if (pools === undefined) return '';
  const { positions, indexer } = pools;
  if (indexer === undefined) return `, and pools of ${positions}`;
  return `, and ${indexer.entries} pools of ${positions} by an indexer of ${indexer.heads} heads of ${indexer.headDim}`;
}

function describeGlu({ intermediateSize }: GluShape): string {
  return `feed-forward network of ${intermediateSize}`;
}

function describeRouter(
  { score, groups, groupsKept, byToken }: RouterShape,
  { experts, expertsPerToken }: ModelShape,
): string {
  const within = groups > 1 ? ` within ${groupsKept} of ${groups} groups` : '';
  return `${expertsPerToken} of ${experts} experts by ${byToken === true ? `token, weighed by ${score}` : score}${within}`;
}

/** "0 to 3, 5"; numbers with a constant step as "0, 2, ... 46". At most `SHOWN` ranges are named. */
export function describeNumbers(numbers: readonly number[]): string {
  const [first = 0, second = first + 1] = numbers;
  const last = numbers.at(-1) ?? first;
  const isRegular = numbers.every((number, index) => number === first + index * (second - first));
  if (isRegular && second - first > 1 && numbers.length > 3) return `${first}, ${second}, ... ${last}`;
  const extents: [number, number][] = [];
  for (const number of numbers) {
    const extent = extents.at(-1);
    if (extent?.[1] === number - 1) extent[1] = number;
    else extents.push([number, number]);
  }
  const named = extents.slice(0, SHOWN).map(([from, to]) => (from === to ? `${from}` : `${from} to ${to}`));
  return named.join(', ') + (extents.length > SHOWN ? `, ... ${last}` : '');
}

const SHOWN = 6;
