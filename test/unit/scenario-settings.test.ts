import assert from 'node:assert/strict';
import { rowsOf } from '../../shared/settings/settings-table.js';
import { describeScenario } from '../../simulator/faults/describe-scenario.js';
import { drawScenario } from '../../simulator/faults/draw-scenario.js';
import type { Scenario } from '../../simulator/faults/scenario.js';
import { shrinkScenario } from '../../simulator/faults/shrink-scenario.js';

const GROUPS = ['align', 'batching', 'drafting', 'placement', 'prediction', 'main', 'shadow', 'worker'] as const;
const SEEDS = [0, 1, 2, 3, 4];
const MANY_TRIES = 100_000;

/** "worker-1: worker.slots 3" for each value that is not the simplest of its row. */
function withoutSimplestValue({ nodes }: Scenario): string[] {
  return nodes.flatMap(({ settings }) =>
    GROUPS.flatMap((group) => {
      const values: Readonly<Record<string, unknown>> = { ...settings[group] };
      return rowsOf(group).flatMap(([name, { simplest, default: otherwise }]) => {
        const wanted = simplest === undefined ? otherwise : simplest;
        if (wanted === undefined || JSON.stringify(values[name]) === JSON.stringify(wanted)) return [];
        return [`${settings.id}: ${group}.${name} ${String(values[name])}`];
      });
    }),
  );
}

describe('the settings of a scenario of faults', () => {
  it('shrink to the simplest value of every row of the settings table, if the scenario fails with all settings', async () => {
    for (const seed of SEEDS) {
      const drawn = drawScenario(seed);
      assert.notDeepEqual(withoutSimplestValue(drawn), [], `seed ${seed} draws no setting`);
      const smallest = await shrinkScenario(drawn, async () => true, MANY_TRIES);
      assert.deepEqual(withoutSimplestValue(smallest), [], `seed ${seed}`);
    }
  });

  it('keep a value without which the scenario does not fail', async () => {
    const drawn = drawScenario(1);
    const rowsOfMain = ({ nodes }: Scenario): number | undefined =>
      nodes.find(({ settings }) => settings.role === 'main')?.settings.main.prefillRows;
    const smallest = await shrinkScenario(
      drawn,
      async (smaller) => rowsOfMain(smaller) === rowsOfMain(drawn),
      MANY_TRIES,
    );
    assert.deepEqual(
      withoutSimplestValue(smallest).filter((text) => !text.includes(' main.prefillRows ')),
      [],
    );
    assert.notEqual(withoutSimplestValue(smallest).length, 0);
  });

  it('are described by the names of the table: each drawn value that is not the default', () => {
    for (const seed of SEEDS) {
      const scenario = drawScenario(seed);
      const text = describeScenario(scenario).join('\n');
      const main = scenario.nodes.find(({ settings }) => settings.role === 'main')?.settings;
      assert.ok(main !== undefined);
      for (const group of ['batching', 'placement', 'prediction', 'align', 'main'] as const) {
        const values: Readonly<Record<string, unknown>> = { ...main[group] };
        for (const [name, row] of rowsOf(group)) {
          if (row.drawn === undefined) continue;
          const described = `${group}.${name} ${JSON.stringify(values[name])}`;
          assert.equal(text.includes(described), values[name] !== row.default, `seed ${seed}: ${described}`);
        }
      }
    }
  });
});
