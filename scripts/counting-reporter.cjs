// mocha's own spec reporter, which also writes how many tests passed, failed and were skipped to build/test-counts.json.
const { mkdirSync, writeFileSync } = require('node:fs');
const { dirname, join } = require('node:path');
const { Runner, reporters } = require('mocha');

const COUNTS_PATH = join(__dirname, '..', 'build', 'test-counts.json');

class CountingReporter extends reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    runner.once(Runner.constants.EVENT_RUN_END, () => {
      const { passes, failures, pending } = runner.stats;
      mkdirSync(dirname(COUNTS_PATH), { recursive: true });
      writeFileSync(COUNTS_PATH, JSON.stringify({ passed: passes, failed: failures, skipped: pending }));
    });
  }
}

module.exports = CountingReporter;
