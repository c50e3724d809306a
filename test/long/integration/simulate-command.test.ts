import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { readTrace, recordedRecall } from '../../../simulator/trace/trace-file.js';

const run = promisify(execFile);
const BIN = join(packageRoot(), 'bin', 'odmoe');
/** A model of few layers: dozens of set-ups are simulated for a plan. */
const SMALL = join(packageRoot(), 'test', 'fixtures', 'mixtral');

async function odmoe(...args: string[]): Promise<string> {
  const { stdout } = await run(process.execPath, [BIN, ...args], { maxBuffer: 16 * 1024 * 1024 });
  return stdout;
}

async function fails(...args: string[]): Promise<{ code: number; stderr: string }> {
  try {
    await odmoe(...args);
  } catch (thrown) {
    const { code, stderr } = thrown as { code: number; stderr: string };
    return { code, stderr };
  }
  throw new Error(`odmoe ${args.join(' ')} succeeded`);
}

interface SimulationObject {
  ttft_ms: number;
  tpot_ms: number;
  decode_tokens_per_s: number;
  recall: number;
  stalls_by_layer: { layer: number; mean_ms: number; share: number }[];
  memory: { main: { used_bytes: number }; worker: { used_bytes: number; memory_bytes: number }; total_bytes: number };
}

/** Beside other tests on a machine of few cores. */
const LIMIT_MS = 400_000;

describe('odmoe simulate and odmoe plan cluster:', function () {
  this.timeout(LIMIT_MS);

  let directory = '';

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'odmoe-simulate-'));
  });

  after(async () => {
    await rm(directory, { recursive: true, force: true });
  });

  it('simulate prints a report for programs and draws a token', async () => {
    const diagram = join(directory, 'token.svg');
    const text = await odmoe('simulate', '--tokens', '6', '--diagram', diagram, '--diagram-token', '3', '--json');
    const report = JSON.parse(text) as SimulationObject;
    assert.equal(report.stalls_by_layer.length, 32);
    assert.ok(report.tpot_ms > 100 && report.tpot_ms < 500, `${report.tpot_ms} ms`);
    assert.ok(report.recall > 0.98);
    assert.ok(report.memory.worker.used_bytes <= report.memory.worker.memory_bytes);
    const svg = await readFile(diagram, 'utf8');
    assert.match(svg, /^<svg /);
    for (const words of ['main', 'shadow', 'worker-8', 'token 3', ' ms']) assert.ok(svg.includes(words), words);
    // Every layer of main, twice two experts in all four groups.
    for (let layer = 1; layer <= 32; layer += 1) {
      assert.match(svg, new RegExp(`>M<tspan [^>]*>${layer}</tspan>`));
      assert.match(svg, new RegExp(`<title>EC layer ${layer},`));
    }
  });

  it('simulate prints tables for people', async () => {
    const text = await odmoe('simulate', '--tokens', '4', '--workers', '4', '--prediction', 'off');
    for (const words of ['TTFT', 'TPOT', 'recall', 'in all', 'passes that wait'])
      assert.ok(text.includes(words), words);
  });

  it('a trace is recorded from the demo model and simulated', async () => {
    const trace = join(directory, 'trace.json');
    await odmoe('bench', 'trace', trace, '--prompts', '2', '--tokens', '8');
    const document = readTrace(trace);
    assert.equal(document.prompts.length, 2);
    assert.ok(recordedRecall(document) > 0.9, `${recordedRecall(document)}`);
    const text = await odmoe(
      'simulate',
      '--trace',
      trace,
      '--tokens',
      '9',
      '--optimistic',
      '--draft-rows',
      '2',
      '--json',
    );
    const report = JSON.parse(text) as SimulationObject & { prompts: number; tokens: number };
    assert.equal(report.prompts, 2);
    assert.equal(report.tokens, 18);
  });

  it('plan cluster names the bottleneck of a cluster and a set-up for it', async () => {
    const flags = ['--model', SMALL, '--workers', '4', '--tokens', '2', '--link-bandwidth', '60GB', '--json'];
    const plan = JSON.parse(await odmoe('plan', 'cluster', ...flags)) as {
      io_bound: boolean;
      equation1: { groups: number; load_ms: number; max_load_ms: number };
      best: { decode_tokens_per_s: number };
      plain: { decode_tokens_per_s: number };
      tried: unknown[];
      sliced: { quality: string; speedup: number; loss_measured_on: string }[];
      fits: boolean;
    };
    const { groups, load_ms: loadMs, max_load_ms: maxLoadMs } = plan.equation1;
    assert.equal(plan.io_bound, loadMs > maxLoadMs);
    assert.ok(groups >= 1);
    assert.ok(plan.best.decode_tokens_per_s >= plan.plain.decode_tokens_per_s);
    assert.ok(plan.tried.length > 40);
    assert.equal(plan.sliced.length, 9);
    assert.ok(plan.sliced.every(({ speedup, loss_measured_on: on }) => speedup > 0.99 && on === 'demo model'));
    assert.equal(plan.fits, true);
  });

  it('plan cluster plans with a format, in which experts are smaller', async () => {
    const flags = ['--model', SMALL, '--workers', '2', '--tokens', '2', '--json'];
    const plan = async (...more: string[]) =>
      JSON.parse(await odmoe('plan', 'cluster', ...flags, ...more)) as {
        format: string | null;
        storage: string;
        boxes: { disk_bytes: number }[];
        sliced: unknown[];
      };
    const [plain, q8] = [await plan(), await plan('--format', 'q8_0')];
    assert.deepEqual([plain.format, q8.format, q8.storage], [null, 'Q8_0', 'Q8_0']);
    assert.ok((q8.boxes[0]?.disk_bytes ?? 0) < (plain.boxes[0]?.disk_bytes ?? 0));
    assert.ok(q8.sliced.length < plain.sliced.length);
  });

  it('plan cluster takes boxes of several kinds and reports one that is too small', async () => {
    const boxes = ['--box', '2:24GB:24GB', '--box', '2:2MB:128MiB'];
    const text = await odmoe('plan', 'cluster', '--model', SMALL, ...boxes, '--tokens', '2');
    assert.match(text, /on 4 workers .*I\/O-bound/);
    assert.match(text, /TOO LITTLE/);
    assert.match(text, /does NOT fit/);
  });

  it('wrong usage ends with status 2 and an explanation', async () => {
    const cases: [string[], RegExp][] = [
      [['simulate', '--profile', join(directory, 'none.yaml')], /none\.yaml/],
      [['simulate', '--recall', '2'], /from 0 to 1/],
      [['simulate', '--prediction', 'off', '--optimistic'], /no drafts/],
      [['simulate', '--diagram', join(directory, 'x.svg'), '--diagram-token', '1'], /from 2 to/],
      [['simulate', '--trace', join(directory, 'none.json')], /none\.json/],
      [['plan', 'cluster', '--box', '0:1GB'], /COUNT:LINK/],
      [['plan', 'cluster', '--box', '4:12'], /give a unit/],
      [['plan', 'cluster', '--box', '2:24GB', '--workers', '3'], /leave one out/],
      [['plan', 'cluster', '--format', 'Q4_K_X'], /no format Q4_K_X; there are .*Q4_K_M/],
      [['plan', 'cluster', '--format', 'Q4_K_M', '--expert-storage', 'fixed4'], /leave one out/],
    ];
    for (const [args, message] of cases) {
      const { code, stderr } = await fails(...args);
      assert.equal(code, 2, args.join(' '));
      assert.match(stderr, message);
    }
  });

  it('both have a help text', async () => {
    assert.match(await odmoe('help', 'simulate'), /Usage: odmoe simulate/);
    assert.match(await odmoe('help', 'plan', 'cluster'), /Usage: odmoe plan cluster/);
    assert.match(await odmoe('plan', '--help'), /Usage: odmoe plan/);
  });
});
