import assert from 'node:assert/strict';
import { once } from 'node:events';
import { firstReference, runningDemos, type DemoJson } from '../../integration/harness/running-demo.js';
import { waitUntil } from '../../integration/harness/wait-until.js';

describe('odmoe demo, with other settings and exits,', () => {
  const start = runningDemos();

  it('streams the text and shows recall, reloads, speed and memory', async () => {
    const reference = await firstReference();
    const demo = start([
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

  it('gives the same answer without a shadow and with one worker', async () => {
    const reference = await firstReference();
    const ids = reference.prompt_token_ids.join(',');
    const flags = ['--workers', '1', '--shadow', 'none', '--max-tokens', '6', '--json', '--prompt-token-ids', ids];
    const demo = start(flags);
    const { status, stdout, stderr } = await demo.outcome;
    assert.equal(status, 0, stderr);
    const answer = JSON.parse(stdout) as DemoJson;
    assert.deepEqual(answer.token_ids, reference.token_ids.slice(0, 6));
    assert.equal(answer.sep, null);
    assert.equal(answer.nodes.length, 2);
  });

  const LONG = ['--workers', '2', '--max-tokens', '1900', '--ignore-eos'];

  it('leaves no process behind when it is killed while the daemons start', async () => {
    const demo = start(LONG);
    await waitUntil('a first daemon is there', () => (demo?.daemons().length ?? 0) > 0);
    demo.child.kill('SIGKILL');
    await demo.outcome;
    await demo.assertNothingLeft();
  });

  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    it(`stops its daemons in order on ${signal}`, async () => {
      const demo = start(LONG);
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

  it('shows the output of a daemon that cannot start, and stops the others', async () => {
    const demo = start(['--workers', '1'], { ODMOE_INSTRUCTION_SET: 'abacus' });
    const { status, stderr } = await demo.outcome;
    assert.equal(status, 3);
    assert.match(stderr, /abacus/);
    assert.match(stderr, /main ended with status/);
    assert.deepEqual(demo.daemons(), []);
  });

  it('refuses contradictory flags', async () => {
    for (const flags of [
      ['--workers', '0'],
      ['--shadow', 'int3'],
      ['--group-size', 'many'],
      ['a', '--prompt-token-ids', '1'],
    ]) {
      const demo = start(flags);
      const { status, stdout } = await demo.outcome;
      assert.equal(status, 2, flags.join(' '));
      assert.equal(stdout, '');
    }
  });
});
