import { existingDistances, type LayerMaps } from '../../shared/model/expert-maps.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import type { Predictor } from '../../packs/predictor/predictor-file.js';
import type { Scenario } from './scenario.js';

/** Main's trained maps in a scenario. */
type DrawnMaps = 'none' | 'sound' | 'damaged';

const DAMAGED_SHARE = 0.2;
const BESIDE_SHADOW_SHARE = 0.4;
const UNITS = 4;
const DISTANCES = [0, 1, 2, 4];

/** Follows from the scenario's seed and main's settings, so that it draws nothing from their streams. */
export function drawnMaps({ seed, nodes }: Pick<Scenario, 'seed' | 'nodes'>): DrawnMaps {
  const source = nodes[0]?.settings.prediction.source;
  const random = mapsRandom(seed);
  const isDamaged = random.chance(DAMAGED_SHARE);
  if (source === 'sep') return random.chance(BESIDE_SHADOW_SHARE) ? (isDamaged ? 'damaged' : 'sound') : 'none';
  return source === 'trained' ? (isDamaged ? 'damaged' : 'sound') : 'none';
}

/** Reads the maps of a scenario as readPredictor reads those of a pack. */
export async function readDrawnMaps(
  scenario: Pick<Scenario, 'seed' | 'nodes'>,
  shape: ModelShape,
): Promise<Predictor | null> {
  switch (drawnMaps(scenario)) {
    case 'none':
      return null;
    case 'damaged':
      throw new OdmoeError('PACK_CORRUPT', 'predictor.safetensors has other bytes than it had (simulated)');
    case 'sound':
      return randomPredictor(shape, mapsRandom(scenario.seed).fork('weights'));
  }
}

function mapsRandom(seed: number): SeededRandom {
  return new SeededRandom(seed).fork('trained maps');
}

/** Maps with random weights. They foretell badly, with probabilities from near 0 to near 1, and always the same for a state. */
export function randomPredictor({ hiddenSize, experts, expertLayers }: ModelShape, random: SeededRandom): Predictor {
  const shape = { hiddenSize, experts, units: UNITS, layers: expertLayers, distances: DISTANCES };
  const bytes = (count: number): Int8Array => Int8Array.from({ length: count }, () => random.int(255) - 127);
  const fractions = (count: number, most: number): Float32Array =>
    Float32Array.from({ length: count }, () => (random.fraction() - 0.5) * 2 * most);
  const layers = Array.from({ length: expertLayers }, (_, layer): LayerMaps => {
    const rows = existingDistances(shape, layer).length * experts;
    return {
      units: bytes(UNITS * hiddenSize),
      unitScales: fractions(UNITS, 0.01),
      heads: bytes(rows * UNITS),
      headScales: fractions(rows, 0.05),
      biases: fractions(rows, 2),
    };
  });
  return { shape, layers, recall: [], tokens: 0, seed: 0, text: 'random weights' };
}
