import {
  expertGlu,
  expertLayerNumbers,
  hasFeedForward,
  valueHeadDim,
  type AttentionMixer,
  type DeltaMixer,
  type GluShape,
  type LatentMixer,
  type LayerShape,
  type MixerShape,
  type ModelShape,
  type PooledMixer,
  type RotaryShape,
  type RouterShape,
  type StateSpaceMixer,
} from './model-shape.js';

/** The reason why a shape is impossible, as a phrase for an error message; null if it is possible. */
export function shapeProblem(shape: ModelShape): string | null {
  if (shape.expertsPerToken > shape.experts) {
    return `${shape.expertsPerToken} experts per token are more than the ${shape.experts} experts of a layer`;
  }
  const routed = expertLayerNumbers(shape).length;
  if (routed !== shape.expertLayers) {
    return `${routed} layers have experts, and ${shape.expertLayers} are said to have some`;
  }
  if (routed === 0 && shape.draftHead === undefined) return 'no layer has experts';
  if (shape.draftHead !== undefined && shape.norm !== 'rms') return 'a head that drafts has RMS norms';
  if (shape.streams !== undefined && shape.draftHead !== undefined) return 'a head that drafts has no residual streams';
  for (const [number, layer] of shape.layers.entries()) {
    const problem = layerProblem(layer, shape) ?? sharingProblem(layer, shape.layers.slice(0, number));
    if (problem !== null) return `layer ${number}: ${problem}`;
  }
  return null;
}

function sharingProblem({ mixer }: LayerShape, before: readonly LayerShape[]): string | null {
  if (mixer.kind !== 'latent' || mixer.sharesIndexer === undefined) return null;
  if (mixer.indexer !== undefined) return 'it shares an indexer, and has one of its own';
  const isShared = before.some((layer) => layer.mixer.kind === 'latent' && layer.mixer.indexer !== undefined);
  return isShared ? null : 'it shares an indexer, and no layer before it has one';
}

function layerProblem(layer: LayerShape, shape: ModelShape): string | null {
  if (!hasFeedForward(layer) && hasFeedForwardFlags(layer)) {
    return 'it has neither experts nor a feed-forward network, but something of theirs';
  }
  const glus = [...(layer.always === null ? [] : [layer.always.glu]), expertGlu(shape, layer)];
  const problem = glus.map(gluProblem).find((found) => found !== null);
  if (problem !== undefined) return problem;
  if (layer.parallel === true && (layer.routedNorm || layer.routerNorm)) {
    return 'a parallel block has one norm, and none of experts or router alone';
  }
  if (shape.streams !== undefined && (layer.parallel === true || layer.layerScale)) {
    return 'a parallel block and a scaled layer have no residual streams';
  }
  return mixerProblem(layer.mixer, shape) ?? (layer.routed === null ? null : routerProblem(layer.routed, shape));
}

/** True for anything that belongs to a feed-forward part or follows it. */
function hasFeedForwardFlags(layer: LayerShape): boolean {
  const { routedNorm, routerNorm, alwaysOutputNorm, routedOutputNorm, feedForwardOutputNorm, layerScale } = layer;
  const norms = routedNorm || routerNorm || alwaysOutputNorm || routedOutputNorm || feedForwardOutputNorm;
  return norms || layerScale || layer.parallel === true;
}

function gluProblem({ activation, intermediateSize, bias, limit }: GluShape): string | null {
  if (activation !== 'relu-squared') return null;
  if (bias || limit !== 0) return 'networks without a gate have no biases and no limit';
  return intermediateSize % 2 === 0
    ? null
    : `a network without a gate has an even number of rows, not ${intermediateSize}`;
}

function mixerProblem(mixer: MixerShape, shape: ModelShape): string | null {
  switch (mixer.kind) {
    case 'attention':
      if (mixer.heads % mixer.keyValueHeads !== 0) {
        return `${mixer.heads} attention heads are not a multiple of ${mixer.keyValueHeads} key-value heads`;
      }
      if (mixer.keysAreValues && valueHeadDim(mixer) !== mixer.headDim) {
        return `values of ${valueHeadDim(mixer)} dimensions cannot be keys of ${mixer.headDim}`;
      }
      return rotaryProblem(mixer.rotary, mixer.headDim, shape) ?? blockIndexerProblem(mixer, shape);
    case 'latent':
      return rotaryProblem(mixer.rotary, mixer.ropeSize, shape) ?? indexerProblem(mixer, shape);
    case 'delta':
      return deltaProblem(mixer);
    case 'convolution':
      return null;
    case 'state-space':
      return stateSpaceProblem(mixer);
    case 'pooled':
      return pooledProblem(mixer, shape);
  }
}

function deltaProblem({ valueHeads, keyHeads, decayWidth, decayFloor }: DeltaMixer): string | null {
  if (valueHeads % keyHeads !== 0) return `${valueHeads} value heads are not a multiple of ${keyHeads} key heads`;
  if (decayFloor === undefined || decayWidth === 'channel') return null;
  return 'a floor of the decay needs a decay of each channel';
}

function stateSpaceProblem({ heads, groups, headDim, normGroups }: StateSpaceMixer): string | null {
  if (heads % groups !== 0) return `${heads} heads are not a multiple of ${groups} groups`;
  if ((heads * headDim) % normGroups === 0) return null;
  return `${heads} heads of ${headDim} do not make ${normGroups} equal parts of a norm`;
}

function pooledProblem({ heads, headDim, outputGroups, rotary, pools }: PooledMixer, shape: ModelShape): string | null {
  if (heads % outputGroups !== 0) return `${heads} heads are not a multiple of ${outputGroups} groups`;
  const indexer = pools?.indexer;
  const ofIndexer = indexer === undefined ? null : rotaryProblem(indexer.rotary, indexer.headDim, shape);
  return rotaryProblem(rotary, headDim, shape) ?? ofIndexer;
}

function indexerProblem({ indexer, queryRank }: LatentMixer, shape: ModelShape): string | null {
  if (indexer === undefined) return null;
  if (queryRank === 0) return 'its indexer needs low-rank queries, and it has none';
  const { positions, poolPositions = 1 } = indexer;
  if (positions % poolPositions !== 0) {
    return `${positions} chosen positions are not a multiple of pools of ${poolPositions}`;
  }
  return rotaryProblem(indexer.rotary, indexer.headDim, shape);
}

function blockIndexerProblem({ blockIndexer, window, sinks }: AttentionMixer, shape: ModelShape): string | null {
  if (blockIndexer === undefined) return null;
  if (window !== 0 || sinks) return 'attention to chosen blocks has neither a window nor sinks';
  const { blocks, localBlocks, rotary, headDim } = blockIndexer;
  if (localBlocks > blocks) return `the last ${localBlocks} blocks cannot be among ${blocks} chosen ones`;
  return rotaryProblem(rotary, headDim, shape);
}

function rotaryProblem(rotary: RotaryShape | null, dimensions: number, shape: ModelShape): string | null {
  if (rotary === null) return null;
  const rope = shape.ropes[rotary.rope];
  if (rope === undefined) return `there is no rope ${rotary.rope}`;
  const end = rotary.offset + 2 * rope.frequencies.length;
  return end > dimensions ? `a rope of ${end} dimensions does not fit the ${dimensions} that are rotated` : null;
}

function routerProblem(router: RouterShape, shape: ModelShape): string | null {
  if (shape.experts % router.groups !== 0) {
    return `${shape.experts} experts do not make ${router.groups} equal router groups`;
  }
  const open = (shape.experts / router.groups) * router.groupsKept;
  if (router.groupsKept > router.groups || open < shape.expertsPerToken) {
    return `${router.groupsKept} of ${router.groups} router groups do not hold ${shape.expertsPerToken} experts`;
  }
  if (router.byToken === true && (router.score === 'sparsemixer' || router.choiceBias || router.groups > 1)) {
    return 'experts by token need scores of all experts, and no biases or groups for a choice';
  }
  if (router.score === 'sparsemixer' && shape.expertsPerToken !== 2) {
    return `sparsemixer chooses 2 experts, not ${shape.expertsPerToken}`;
  }
  return null;
}
