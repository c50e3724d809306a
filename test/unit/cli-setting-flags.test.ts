import assert from 'node:assert/strict';
import { Command } from 'commander';
import { addSetUpFlags } from '../../cli/client/simulation-flags.js';
import { SETTINGS } from '../../shared/settings/settings-table.js';

const { align, drafting, main, placement, prediction } = SETTINGS;
const ROWS = {
  alignToken: align.tokenPeriod,
  alignKv: align.keyValuePeriod,
  streamKv: align.streamKeyValues,
  prefillOverlap: main.prefillOverlap,
  optimistic: drafting.optimistic,
  // The simulator knows shadow's drafts alone, and those only where they are asked for.
  draftRows: { ...drafting.rows, default: 1 },
  homes: placement.homes,
  replicas: placement.replicas,
  spread: placement.spread,
  prediction: prediction.source,
  layersAhead: prediction.layersAhead,
  groupSize: placement.groupSize,
  prefillRows: main.prefillRows,
  miniBatchRows: main.miniBatchRows,
};

describe('the flags of odmoe simulate that are settings of the daemons', () => {
  for (const [name, row] of Object.entries(ROWS)) {
    it(`${name} has the default and the allowed values of its row in the settings table`, () => {
      const command = addSetUpFlags(new Command());
      assert.equal(command.getOptionValue(name), row.default);
      const option = command.options.find((each) => each.attributeName() === name);
      assert.equal(option?.argChoices?.join(), 'choices' in row.kind ? row.kind.choices?.join() : undefined);
      assert.ok(option !== undefined);
      if (option.isBoolean() || option.negate || option.argChoices !== undefined) return;
      assert.ok(row.kind.parseFlag !== undefined);
      assert.equal(option.parseArg, row.kind.parseFlag);
    });
  }
});
