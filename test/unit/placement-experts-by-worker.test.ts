import assert from 'node:assert/strict';
import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';

describe('placement: experts by worker', () => {
  it('keeps the order of the assignment, of workers and of the experts of each', () => {
    const assignment = new Map([
      [5, 'b'],
      [1, 'a'],
      [3, 'b'],
    ]);
    assert.deepEqual(
      [...expertsByWorker(assignment)],
      [
        ['b', [5, 3]],
        ['a', [1]],
      ],
    );
    assert.deepEqual([...expertsByWorker([])], []);
  });

  it('includes workers without experts on request', () => {
    assert.deepEqual(
      [...expertsByWorker([[2, 'c']], ['a', 'c'])],
      [
        ['a', []],
        ['c', [2]],
      ],
    );
  });
});
