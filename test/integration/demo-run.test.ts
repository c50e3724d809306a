import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../shared/config/package-root.js';
import { RunningDemo } from './harness/running-demo.js';
import { waitUntil } from './harness/wait-until.js';

interface DemoJson {
  text: string;
  prompt_token_ids: number[];
  token_ids: number[];
  finish_reason: string;
  sep: { activated: number; correct_by_iteration: number[]; activated_by_iteration: number[] } | null;
  nodes: { id: string; role: string; slots: number; device_memory_high_water_bytes: number; pack_digest: string }[];
}

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

/** Of the demo model. */
const LAYERS = 8;
const EXPERTS_PER_LAYER = 8;

describe('odmoe demo', () => {
  let demo: RunningDemo | null = null;

  before(function () {
    if (process.platform !== 'linux') this.skip();
  });

  afterEach(async function () {
    demo?.child.kill('SIGKILL');
    const outcome = await demo?.outcome;
    if (this.currentTest?.state === 'failed') process.stderr.write(`${outcome?.stdout}\n${outcome?.stderr}\n`);
    demo = null;
  });

  async function firstReference(): Promise<{ prompt: string; prompt_token_ids: number[]; token_ids: number[] }> {
    const text = await readFile(join(packageRoot(), 'models', 'demo', 'reference.json'), 'utf8');
    const { references } = JSON.parse(text) as { references: Awaited<ReturnType<typeof firstReference>>[] };
    assert.ok(references[0] !== undefined);
    return references[0];
  }

  it('answers with eight workers as transformers does, with nearly every expert predicted', async () => {
    const reference = await firstReference();
    demo = new RunningDemo([reference.prompt, '--json', '--max-tokens', '16']);
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

  it('streams the text and shows recall, reloads, speed and memory', async () => {
    const reference = await firstReference();
    demo = new RunningDemo([
      '--workers',
      '2',
      '--max-tokens',
      '8',
      '--shadow',
      'nf4',
      '--align-token',
      '2',
      '--align-kv',
      '2',
    ]);
    const { status, stdout, stderr } = await demo.outcome;
    assert.equal(status, 0, stderr);
    assert.ok(stdout.includes(`> ${reference.prompt}`), stdout);
    for (const part of [
      'recall',
      'reloads',
      'first token',
      'tokens/s',
      'shadow',
      'worker-2',
      'all experts of the model',
    ]) {
      assert.ok(stdout.includes(part), `${part} is not in\n${stdout}`);
    }
    await demo.assertNothingLeft();
  });

  it('answers alike without a shadow and with one worker', async () => {
    const reference = await firstReference();
    const ids = reference.prompt_token_ids.join(',');
    const flags = ['--workers', '1', '--shadow', 'none', '--max-tokens', '6', '--json', '--prompt-token-ids', ids];
    demo = new RunningDemo(flags);
    const { status, stdout, stderr } = await demo.outcome;
    assert.equal(status, 0, stderr);
    const answer = JSON.parse(stdout) as DemoJson;
    assert.deepEqual(answer.token_ids, reference.token_ids.slice(0, 6));
    assert.equal(answer.sep, null);
    assert.equal(answer.nodes.length, 2);
  });

  const LONG = ['--workers', '2', '--max-tokens', '1900', '--ignore-eos'];

  it('leaves no process behind when it is killed in the middle of an answer', async () => {
    demo = new RunningDemo(LONG);
    const { child } = demo;
    assert.ok(child.stdout !== null);
    await once(child.stdout, 'data');
    assert.equal(demo.daemons().length, 4);
    child.kill('SIGKILL');
    assert.equal((await demo.outcome).signal, 'SIGKILL');
    await demo.assertNothingLeft();
  });

  it('leaves no process behind when it is killed while the daemons start', async () => {
    demo = new RunningDemo(LONG);
    await waitUntil('a first daemon is there', () => (demo?.daemons().length ?? 0) > 0);
    demo.child.kill('SIGKILL');
    await demo.outcome;
    await demo.assertNothingLeft();
  });

  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    it(`stops its daemons in order on ${signal}`, async () => {
      demo = new RunningDemo(LONG);
      const { child } = demo;
      assert.ok(child.stdout !== null);
      await once(child.stdout, 'data');
      child.kill(signal);
      const { status, stderr } = await demo.outcome;
      assert.notEqual(status, 0);
      assert.notEqual(status, null, 'it ended by itself');
      assert.ok(!stderr.includes('at '), `no stack trace:\n${stderr}`);
      assert.deepEqual(demo.daemons(), [], 'they had stopped before it ended');
    });
  }

  it('shows what a daemon wrote that cannot start, and stops the others', async () => {
    demo = new RunningDemo(['--workers', '1'], { ODMOE_INSTRUCTION_SET: 'abacus' });
    const { status, stderr } = await demo.outcome;
    assert.equal(status, 3);
    assert.match(stderr, /abacus/);
    assert.match(stderr, /main ended with status/);
    assert.deepEqual(demo.daemons(), []);
  });

  it('refuses flags that make no sense', async () => {
    for (const flags of [
      ['--workers', '0'],
      ['--shadow', 'int3'],
      ['--group-size', 'many'],
      ['a', '--prompt-token-ids', '1'],
    ]) {
      demo = new RunningDemo(flags);
      const { status, stdout } = await demo.outcome;
      assert.equal(status, 2, flags.join(' '));
      assert.equal(stdout, '');
    }
  });
});
