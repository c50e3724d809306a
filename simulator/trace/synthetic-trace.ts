import { counterRandom } from '../../shared/base/arithmetic/counter-random.js';
import type { ClusterTrace, TracePlace } from './cluster-trace.js';

export interface SyntheticTraceSetting {
  layers: number;
  experts: number;
  expertsPerToken: number;
  prompts: number;
  promptTokens: number;
  iterations: number;
  /** Share of activated experts that are predicted. */
  recall: number;
  /** Share of shadow's guesses that are main's tokens. */
  acceptance: number;
  seed: number;
}

/** Number of random streams of one seed. */
const STREAMS = 4;
const ACTIVATED_STREAM = 0;
const PREDICTED_STREAM = 1;
const GUESSED_STREAM = 2;
/** Numbers that one layer of one position may take from its stream. */
const DRAWS_PER_LAYER = 256;
/** A wrong draft uses the numbers of a prompt that does not exist. */
const OFF_PATH_PROMPT_OFFSET = 1 << 20;

/**
 * A trace that is made from random numbers on demand: experts are uniform without replacement, each is predicted with probability `recall`,
 * tokens are guessed with probability `acceptance`. It stores nothing; the same place always gives the same result.
 */
export class SyntheticTrace implements ClusterTrace {
  readonly layers: number;
  readonly experts: number;
  readonly expertsPerToken: number;
  readonly prompts: number;

  constructor(private readonly setting: SyntheticTraceSetting) {
    this.layers = setting.layers;
    this.experts = setting.experts;
    this.expertsPerToken = setting.expertsPerToken;
    this.prompts = setting.prompts;
  }

  promptTokens(): number {
    return this.setting.promptTokens;
  }

  iterations(): number {
    return this.setting.iterations;
  }

  activated(place: TracePlace): readonly number[] {
    const random = this.numbers(ACTIVATED_STREAM, place);
    const chosen: number[] = [];
    while (chosen.length < this.expertsPerToken) chosen.push(this.another(chosen, random));
    return chosen;
  }

  predicted(place: TracePlace): readonly number[] {
    const activated = this.activated(place);
    const random = this.numbers(PREDICTED_STREAM, place);
    const hits = activated.map((expert) => (random() < this.setting.recall ? expert : null));
    const taken = [...activated];
    return hits.flatMap((expert) => {
      if (expert !== null) return [expert];
      // If every expert is activated, no wrong one exists.
      if (taken.length >= this.experts) return [];
      const wrong = this.another(taken, random);
      taken.push(wrong);
      return [wrong];
    });
  }

  guessedRight(prompt: number, position: number): boolean {
    const index = prompt * (this.setting.promptTokens + this.setting.iterations + 1) + position;
    return counterRandom(this.setting.seed * STREAMS + GUESSED_STREAM, index) < this.setting.acceptance;
  }

  /** A random expert that is not in `taken`; all others are equally likely. */
  private another(taken: readonly number[], random: () => number): number {
    let left = Math.floor(random() * (this.experts - taken.length));
    for (let expert = 0; expert < this.experts; expert += 1) {
      if (taken.includes(expert)) continue;
      if (left === 0) return expert;
      left -= 1;
    }
    return this.experts - 1;
  }

  private numbers(stream: number, { prompt, position, layer, onPath }: TracePlace): () => number {
    const { promptTokens, iterations, seed } = this.setting;
    const sequence = onPath ? prompt : prompt + OFF_PATH_PROMPT_OFFSET;
    const place = (sequence * (promptTokens + iterations + 1) + position) * this.layers + layer;
    let draw = 0;
    return () => counterRandom(seed * STREAMS + stream, place * DRAWS_PER_LAYER + draw++);
  }
}
