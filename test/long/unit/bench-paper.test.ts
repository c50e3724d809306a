import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  bestDecodeOverFullyCached,
  likeWithLike,
  measureTable,
  PAPER_TABLES,
  type PaperTable,
} from '../../../bench/paper/cells.js';
import { summarizeAnswers, type Measure, type Measurement } from '../../../bench/paper/measurement.js';
import { cellError, reportJson, paperReportText } from '../../../bench/paper/report.js';
import {
  daemonFlags,
  isCachedMachine,
  PAPER_SET_UP,
  paperSetUp,
  shadowOf,
  type CachedMachine,
  type SetUp,
} from '../../../bench/paper/set-up.js';
import { paperProfileFile, testbedPrompts } from '../../../bench/paper/measure-set-ups.js';
import { writeShadowProfile } from '../../../bench/paper/shadow-profile.js';
import { loadDeviceProfile } from '../../../engine/emulation/load-device-profile.js';
import { AUTO_PRECISIONS } from '../../../shared/decisions/slices/choose-shadow-form.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { parseDaemonFlags } from '../../../engine/daemon/parse-daemon-flags.js';
import type { RoleSetting, ShadowPrecision } from '../../../shared/settings/setting-choices.js';
import { emptyNodeStatus } from '../../../shared/wire/node-status.js';
import type { Finished, NodeIdentity } from '../../../shared/wire/messages.js';
import { loadTokenizer } from '../../../shared/language/tokenizer/load-tokenizer.js';

const CONDITIONS = {
  profile: 'rtx3090-testbed',
  workers: 8,
  precision: 'int8' as const,
  quantize: 'projections' as const,
  prompts: 2,
  wall: false,
  tokensLimit: 256,
};

function measurement(changes: Partial<Measurement>, tokens = 256): Measurement {
  return {
    decodeTokensPerS: 1,
    ttftMs: 1000,
    outputTokensPerS: 1,
    recall: null,
    acceptance: null,
    reloads: 0,
    decodeRange: { lowest: 1, highest: 1 },
    ttftRangeMs: { lowest: 900, highest: 1100 },
    memoryBytes: 60e9,
    shadowMemoryBytes: null,
    simulated: { decodeTokensPerS: 2, ttftMs: null },
    shadowTokenMs: null,
    tokenIds: [Array.from({ length: tokens }, (_, index) => index)],
    ...changes,
  };
}

/** Speeds as of a testbed: `speedOf` says how many tokens a second. */
function fakeMeasure(speedOf: (setUp: SetUp | CachedMachine) => number, asked: unknown[] = []): Measure {
  return async (setUp, input, output) => {
    asked.push([setUp, input, output]);
    return measurement({ decodeTokensPerS: speedOf(setUp) }, output);
  };
}

describe("the paper's tables", () => {
  it('show the values of table 2 beside ours, and name calibrated ones', async () => {
    const { cells } = await measureTable(
      'table2',
      fakeMeasure((setUp) => (isCachedMachine(setUp) ? 5 : 4)),
    );
    assert.equal(cells.length, 2 * (4 * 3 + 1));
    const cell = (row: string, column: string) => cells.find((own) => own.row === row && own.column === column);
    const decode = cell('OD-MoE', 'decode tokens/s (128, 64)');
    assert.deepEqual([decode?.paper, decode?.measured, decode?.calibrated], [3.74, 4, false]);
    assert.equal(cell('fully cached', 'TTFT ms (16, 256)')?.paper, 386.86);
    assert.equal(cell('OD-MoE', 'device memory GB')?.measured, 60);
    const calibrated = cells.filter((own) => own.calibrated).map(({ row, column }) => `${row}: ${column}`);
    assert.equal(calibrated.length, 3, 'the fully cached row and one cell of OD-MoE at most');
    assert.equal(calibrated.filter((name) => name.startsWith('OD-MoE')).length, 1);
    assert.equal(bestDecodeOverFullyCached({ cells, past: [] }), 0.8);
    // The published averages of the column.
    const mean = (row: string, name: string) => {
      const values = cells.filter((own) => own.row === row && own.column.startsWith(name)).map(({ paper }) => paper);
      return values.reduce<number>((sum, value) => sum + (value ?? NaN), 0) / values.length;
    };
    assert.ok(Math.abs(mean('OD-MoE', 'decode') - 3.6925) < 1e-9);
    assert.ok(Math.abs(mean('OD-MoE', 'TTFT') - 2244.3475) < 1e-6);
    assert.ok(Math.abs(mean('OD-MoE', 'output') - 3.37) < 1e-9);
    assert.ok(Math.abs(mean('fully cached', 'TTFT') - 416.9925) < 1e-6);
    assert.ok(Math.abs(mean('fully cached', 'output') - 4.8425) < 1e-9);
  });

  it('compare no output throughput of truncated answers', async () => {
    const short: Measure = async () => measurement({}, 8);
    const { cells } = await measureTable('table2', short);
    const outputs = cells.filter(({ column }) => column.startsWith('output'));
    assert.ok(outputs.length === 8 && outputs.every((cell) => cell.measured === null && cellError(cell) === null));
  });

  it('check the order of the six cases', async () => {
    const speed = (setUp: SetUp | CachedMachine): number => {
      if (isCachedMachine(setUp)) return 9;
      if (setUp.prediction !== 'sep') return setUp.prediction === 'random' ? 2 : 1;
      return 3 + 2 * Math.sign(setUp.alignTokenPeriod) + Math.sign(setUp.alignKeyValuePeriod);
    };
    const { cells, orders } = await measureTable('figure8', fakeMeasure(speed));
    assert.deepEqual(
      cells.map(({ measured, paper }) => [measured, paper]),
      [6, 5, 4, 3, 2, 1].map((expected) => [expected, null]),
    );
    assert.equal(orders[0]?.holds, true);
    const reversed = await measureTable(
      'figure8',
      fakeMeasure((setUp) => -speed(setUp)),
    );
    assert.equal(reversed.orders[0]?.holds, false);
    assert.match(paperReportText(reversed, CONDITIONS), /measured 6 > 5 > 4 > 3 > 2 > 1: another order/);
  });

  it('sweep the periods, with other workers for figure 10', async () => {
    const asked: [SetUp, number, number][] = [];
    const best = fakeMeasure(
      (setUp) => (isCachedMachine(setUp) ? 0 : 9 - Math.abs(setUp.alignKeyValuePeriod - 4)),
      asked,
    );
    const figure10 = await measureTable('figure10', best);
    assert.deepEqual([figure10.cells.length, figure10.orders[0]?.holds], [6, true]);
    assert.ok(asked.every(([setUp, input, output]) => setUp.profile === 'rtx3080-workers' && input + output === 272));
    const figure9 = await measureTable('figure9', best);
    assert.deepEqual([figure9.cells.length, figure9.orders[0]?.holds], [25, false]);
    assert.equal(new Set(figure9.cells.map(({ row }) => row)).size, 25);
  });

  it('show each step beyond the paper alone and all together, and whether tokens stay the same', async () => {
    const asked: SetUp[] = [];
    const measure: Measure = async (setUp) => {
      if (isCachedMachine(setUp)) return measurement({ decodeTokensPerS: setUp === 'cached' ? 5 : 8 });
      if (setUp.profile !== null) return measurement({ decodeTokensPerS: setUp.profile.endsWith('fp32') ? 16 : 20 });
      asked.push(setUp);
      if (setUp.spread === 'all' && !setUp.optimistic) return measurement({ tokenIds: [[1]] });
      return measurement({ decodeTokensPerS: setUp.draftRows === 'auto' ? 8 : 4, recall: 0.9 });
    };
    const { past, cells } = await measureTable('past', measure);
    assert.deepEqual(
      past.map(({ setUp, overFullyCached, tokensEqual }) => [setUp, overFullyCached, tokensEqual]),
      [
        ['fully cached', 1, true],
        ['fully cached, BF16', 1.6, true],
        ['fully cached, drafts', 3.2, true],
        ['fully cached, BF16, drafts', 4, true],
        ["paper's set-up", 0.8, true],
        ['streamed KV', 0.8, true],
        ['optimistic', 0.8, true],
        ['drafts, dealt to all workers', 1.6, true],
        ['spread over all workers', 0.2, false],
        ['packed loads', 0.8, true],
        ['packed loads, 2 slots', 0.8, true],
        ['prefill overlapped', 0.8, true],
        ['all together', 1.6, true],
      ],
    );
    assert.equal(bestDecodeOverFullyCached({ cells, past }), 1.6);
    assert.deepEqual(
      likeWithLike({ past }).map(({ cluster, machine, ratio }) => [cluster, machine, ratio]),
      [
        ['drafts, dealt to all workers', 'fully cached', 1.6],
        ['drafts, dealt to all workers', 'fully cached, BF16', 1],
        ['drafts, dealt to all workers', 'fully cached, drafts', 0.5],
        ['drafts, dealt to all workers', 'fully cached, BF16, drafts', 0.4],
      ],
    );
    const changed = asked.slice(2, -1).map((setUp) => differences(setUp));
    assert.deepEqual(changed, [
      ['streamKeyValues'],
      ['optimistic'],
      ['draftRows'],
      ['spread'],
      ['expertStorage'],
      ['expertStorage', 'slots'],
      ['prefillOverlap'],
    ]);
    const text = paperReportText({ cells, orders: [], past, shadows: [], sources: [] }, CONDITIONS);
    assert.match(text, /spread over all workers .* DIFFERENT/);
    assert.match(text, /best decode over fully cached, FP32, no drafts: 1\.600/);
    assert.match(text, /drafts, dealt to all workers over fully cached, BF16, drafts: 0\.400/);
  });

  it('show each shadow in both set-ups, in the time and memory of its weights', async () => {
    const asked: SetUp[] = [];
    const measure: Measure = async (setUp) => {
      assert.ok(!isCachedMachine(setUp));
      asked.push(setUp);
      const recall = setUp.shadowPrecision === 'nf4' ? 0.97 : 0.99;
      return measurement({ decodeTokensPerS: setUp.draftRows === 'auto' ? 8 : 4, recall, shadowMemoryBytes: 27e9 });
    };
    const { shadows } = await measureTable('shadows', measure);
    assert.deepEqual(
      shadows.map(({ precision, setUp, decodeTokensPerS }) => [precision, setUp, decodeTokensPerS]),
      AUTO_PRECISIONS.flatMap((precision) => [
        [precision, "paper's set-up", 4],
        [precision, 'all together', 8],
      ]),
    );
    assert.deepEqual(
      asked.map(({ shadowPrecision }) => shadowPrecision),
      shadows.map(({ precision }) => precision),
    );
    assert.deepEqual(differences(asked[0] ?? assert.fail()), ['shadowPrecision']);
    const text = paperReportText({ cells: [], orders: [], past: [], shadows, sources: [] }, CONDITIONS);
    assert.match(text, /nf4 +paper's set-up +4\.00 .* 27\.0 GB +0\.9700/);
  });

  it('compare each source of predictions with the shadow in the same set-up', async () => {
    const asked: SetUp[] = [];
    const measure: Measure = async (setUp) => {
      assert.ok(!isCachedMachine(setUp));
      asked.push(setUp);
      const slower = { sep: 1, trained: 0.95, 'router-ahead': 0.7, random: 0.5, off: 0.4 }[setUp.prediction];
      return measurement({ decodeTokensPerS: (setUp.slots === 1 ? 4 : 8) * slower });
    };
    const { sources } = await measureTable('sources', measure);
    assert.deepEqual(
      sources.slice(0, 5).map(({ source, overShadow }) => [source, overShadow]),
      [
        ['shadow, maps beside it', 1],
        ['trained maps', 0.95],
        ['router-ahead, 1 layer', 0.7],
        ['router-ahead, 2 layers', 0.7],
        ['none', 0.4],
      ],
    );
    assert.deepEqual(
      sources.slice(5).map(({ decodeTokensPerS, overShadow }) => decodeTokensPerS / overShadow),
      sources.slice(5).map(() => 8),
    );
    assert.ok(asked.every(({ draftRows }) => draftRows === 1));
    const text = paperReportText({ cells: [], orders: [], past: [], shadows: [], sources }, CONDITIONS);
    assert.match(text, /trained maps +paper's set-up +3\.80 .* 0\.950/);
  });

  it('give a shadow the bytes of its weights', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'odmoe-profile-'));
    try {
      const profilePath = paperProfileFile('rtx3090-testbed');
      const { devices, ...rest } = loadDeviceProfile(profilePath);
      const weights = {
        'sliced(8,4,low)': [1, 4.75 / 8],
        'sliced(6,3)': [1, 6.75 / 8],
        nf4: [4.5 / 8, 4.5 / 8],
      } as const;
      for (const [precision, [dense, expert]] of Object.entries(weights)) {
        const path = await writeShadowProfile(profilePath, precision as ShadowPrecision, directory);
        const { devices: written, ...others } = loadDeviceProfile(path);
        assert.deepEqual(others, rest);
        assert.deepEqual({ ...written, shadow: null }, { ...devices, shadow: null });
        const { shadow } = written;
        // An INT8 row of 4,096 weights has a scale of four bytes.
        assert.ok(Math.abs((shadow?.weightBytes ?? 0) - dense) <= 0.001 && shadow?.expertWeightBytes === expert);
        assert.equal(shadow?.denseOverheadMs, devices.shadow?.denseOverheadMs);
      }
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  });

  it('are one JSON object of plain keys', async () => {
    const result = await measureTable(
      'figure8',
      fakeMeasure(() => 2),
    );
    const json = JSON.parse(JSON.stringify(reportJson(result, CONDITIONS))) as Record<string, unknown>;
    assert.deepEqual(Object.keys(json).sort(), [
      'best_decode_over_fully_cached',
      'cells',
      'like_with_like',
      'orders',
      'past',
      'precision',
      'profile',
      'prompts',
      'quantize',
      'shadows',
      'sources',
      'tokens_limit',
      'wall',
      'workers',
    ]);
    assert.deepEqual((json.cells as unknown[])[0], {
      table: 'figure8',
      row: '1 token and KV alignment',
      column: 'decode tokens/s',
      paper: null,
      measured: 2,
      calibrated: false,
      structure_fitted: false,
      error: null,
      simulated: 2,
      simulator_error: 0,
      range: { lowest: 1, highest: 1 },
    });
    assert.equal(json.best_decode_over_fully_cached, null);
  });

  it('are measured in set-ups that daemons accept', async () => {
    const setUps: SetUp[] = [];
    const measure = fakeMeasure((setUp) => {
      if (!isCachedMachine(setUp)) setUps.push(setUp);
      return 1;
    });
    for (const table of PAPER_TABLES satisfies readonly PaperTable[]) await measureTable(table, measure);
    for (const setUp of setUps) {
      for (const [role, flags] of Object.entries(daemonFlags(setUp, 'all', '/lab.yaml'))) {
        const request = parseDaemonFlags(role as RoleSetting, ['--model', '/p', ...flags]);
        assert.ok(request.kind === 'run');
        assert.equal(request.settings.emulation?.expertStorage, setUp.expertStorage);
        if (role === 'main') assert.equal(request.settings.align.streamKeyValues, setUp.streamKeyValues);
        if (role === 'worker') assert.equal(request.settings.worker.slots, setUp.slots);
        if (role === 'shadow') assert.equal(request.settings.shadow.quantize, 'all');
      }
    }
    assert.deepEqual(daemonFlags(PAPER_SET_UP, 'projections', null).shadow, ['--quantize', 'projections']);
    assert.equal(shadowOf(paperSetUp({ prediction: 'off' }), 'nf4'), 'none');
    assert.equal(shadowOf(PAPER_SET_UP, 'nf4'), 'nf4');
  });
});

function differences(setUp: SetUp): string[] {
  return (Object.keys(PAPER_SET_UP) as (keyof SetUp)[]).filter((key) => setUp[key] !== PAPER_SET_UP[key]);
}

describe('the answers of the testbed', () => {
  it('are summed up: means of times, recall over all experts', () => {
    const identityOf = (role: NodeIdentity['role']) => ({ id: role, role }) as NodeIdentity;
    const answer = (decodeTokensPerS: number, correct: number, drafts: Finished['drafts']) => {
      const timing = {
        ttftMs: 100,
        tpotMs: 1,
        decodeTokensPerS,
        outputTokensPerS: decodeTokensPerS,
        queuedMs: 0,
        ioStallMs: 0,
      };
      const counts = { late: 0, correctByIteration: [], activatedByIteration: [] };
      const sep = { recall: 0, activated: 100, predictedCorrectly: correct, ...counts };
      const nodes = (['ROLE_WORKER', 'ROLE_SHADOW'] as const).map((role, index) => ({
        ...emptyNodeStatus(identityOf(role)),
        deviceMemoryHighWaterBytes: 1 + index,
      }));
      const end = { finishReason: 'length', text: '', stopString: '', cachedTokens: 0 };
      const finished: Finished = { ...end, timing, sep, reloads: 3, nodes, drafts };
      return { tokenIds: [correct], finished };
    };
    const summary = summarizeAnswers(
      [answer(2, 90, { proposed: 10, accepted: 5 }), answer(4, 100, { proposed: 30, accepted: 25 })],
      { simulated: null, shadowTokenMs: 83 },
    );
    assert.deepEqual(summary, {
      decodeTokensPerS: 3,
      ttftMs: 100,
      outputTokensPerS: 3,
      recall: 0.95,
      acceptance: 0.75,
      reloads: 6,
      decodeRange: { lowest: 2, highest: 4 },
      ttftRangeMs: { lowest: 100, highest: 100 },
      memoryBytes: 3,
      shadowMemoryBytes: 2,
      tokenIds: [[90], [100]],
      simulated: null,
      shadowTokenMs: 83,
    });
    const { acceptance } = summarizeAnswers([answer(2, 90, null)], { simulated: null, shadowTokenMs: null });
    assert.equal(acceptance, null);
  });
});

describe('the prompts of the testbed', () => {
  it('have the exact length, differ, and end as the chat template does', async () => {
    const tokenizer = await loadTokenizer(join(packageRoot(), 'models', 'demo'));
    const ending = tokenizer
      .encodeRendered(tokenizer.renderChat([{ role: 'user', content: 'x' }], { values: {}, wallMs: 0 }))
      .at(-1);
    for (const length of [16, 128]) {
      const prompts = testbedPrompts(tokenizer, length, 6);
      assert.equal(new Set(prompts.map((ids) => ids.join())).size, 6);
      for (const ids of prompts) {
        assert.equal(ids.length, length);
        assert.equal(ids.at(-1), ending);
      }
      assert.deepEqual(testbedPrompts(tokenizer, length, 6), prompts);
    }
    assert.equal(testbedPrompts(tokenizer, 3, 1)[0]?.length, 3);
    assert.throws(() => testbedPrompts(tokenizer, 16, 1000), { code: 'USAGE' });
  });
});
