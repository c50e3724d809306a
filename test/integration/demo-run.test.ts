import assert from 'node:assert/strict';
import { once } from 'node:events';
import { firstReference, runningDemos, type DemoJson } from './harness/running-demo.js';

/**
 * Recall over the iterations that the shadow came to. On a machine that is busy with other things it may be behind when main
 * ends the answer; what it had not yet predicted then says nothing of how well it predicts.
 */
function assertNearlyAllPredicted(sep: NonNullable<DemoJson['sep']>): void {
  const last = sep.correct_by_iteration.findLastIndex((correct) => correct > 0);
  const sum = (counts: number[]) => counts.slice(0, Math.max(1, last)).reduce((total, count) => total + count, 0);
  const recall = sum(sep.correct_by_iteration) / sum(sep.activated_by_iteration);
  assert.ok(recall > 0.9, `recall ${recall} up to iteration ${last}`);
}

/** Expert layers and experts of the demo model. */
const LAYERS = 8;
const EXPERTS_PER_LAYER = 8;

/** Other settings, and other ends: test/long/integration/demo-run.test.ts. */
describe('odmoe demo', () => {
  const start = runningDemos();

  it('answers with eight workers as transformers does, with nearly every expert predicted', async () => {
    const reference = await firstReference();
    const demo = start([reference.prompt, '--json', '--max-tokens', '16']);
    const { status, stdout, stderr } = await demo.outcome;
    assert.equal(status, 0, stderr);
    const answer = JSON.parse(stdout) as DemoJson;
    assert.deepEqual(answer.prompt_token_ids, reference.prompt_token_ids);
    assert.deepEqual(answer.token_ids, reference.token_ids.slice(0, 16));
    assert.equal(answer.finish_reason, 'length');
    assert.ok(answer.sep !== null);
    assertNearlyAllPredicted(answer.sep);
    assert.equal(answer.sep.activated, 15 * LAYERS * 2, 'iterations x layers x top-k');
    assert.equal(answer.nodes.length, 10);
    const workers = answer.nodes.filter(({ role }) => role === 'worker');
    assert.equal(workers.length, 8);
    const expertBytes = 3 * 128 * 256 * 2;
    for (const worker of workers) {
      assert.ok(worker.device_memory_high_water_bytes >= expertBytes, 'an expert was on the device');
      assert.ok(worker.slots < EXPERTS_PER_LAYER, 'no worker has slots for even one layer’s experts');
      const mostBytes = (LAYERS * EXPERTS_PER_LAYER * expertBytes) / 4;
      assert.ok(
        worker.device_memory_high_water_bytes < mostBytes,
        'with its read buffers it takes far less than the model',
      );
    }
    await demo.assertNothingLeft();
  });

  it('leaves no process behind when it is killed in the middle of an answer', async () => {
    const demo = start(['--workers', '2', '--max-tokens', '1900', '--ignore-eos']);
    const { child } = demo;
    assert.ok(child.stdout !== null);
    await once(child.stdout, 'data');
    assert.equal(demo.daemons().length, 4);
    child.kill('SIGKILL');
    assert.equal((await demo.outcome).signal, 'SIGKILL');
    await demo.assertNothingLeft();
  });
});
