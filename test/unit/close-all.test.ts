import assert from 'node:assert/strict';
import { closeAll } from '../../engine/daemon/close-all.js';

describe('closing all that a node has opened', () => {
  it('calls every closer stage by stage, and then throws the first failure', async () => {
    const called: string[] = [];
    const closer =
      (name: string, fault: string | null = null) =>
      async (): Promise<void> => {
        called.push(name);
        await Promise.resolve();
        called.push(`${name} ended`);
        if (fault !== null) throw new Error(fault);
      };
    const throwing = (): void => {
      throw new Error('second');
    };
    const stages = [[closer('a', 'first'), throwing, closer('b')], [closer('c', 'third')], [closer('d')]];
    await assert.rejects(closeAll(stages), /first|second/);
    assert.deepEqual(called, ['a', 'b', 'a ended', 'b ended', 'c', 'c ended', 'd', 'd ended']);
    await closeAll([[closer('e')], []]);
  });
});
