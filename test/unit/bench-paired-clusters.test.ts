import assert from 'node:assert/strict';
import { pairedSpeeds } from '../../bench/paired-clusters/run-paired-clusters.js';

describe('two clusters that take turns', () => {
  it('have medians of their speeds, and the ratios of the turns of a round', () => {
    const run = (tokens: number, ms: number): { tokens: number; ms: number } => ({ tokens, ms });
    const rounds = [
      [run(100, 1000), run(100, 500)],
      [run(100, 2000), run(100, 2500)],
      [run(90, 3000), run(90, 2000)],
    ] as const;
    const { first, second, ratio } = pairedSpeeds(rounds);
    assert.deepEqual([first, second], [50, 45]);
    assert.deepEqual(ratio, { median: 1.5, lowest: 0.8, highest: 2 });
  });
});
