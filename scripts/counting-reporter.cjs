// mocha's own spec reporter, which also writes how many tests passed, failed and were skipped, and how long each file took, to the file
// that ODMOE_TEST_COUNTS names.
const { writeFileSync } = require('node:fs');
const { relative } = require('node:path');
const { Runner, reporters } = require('mocha');

class CountingReporter extends reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    const path = process.env.ODMOE_TEST_COUNTS;
    if (path === undefined) return;
    const fileMs = {};
    runner.on(Runner.constants.EVENT_TEST_END, (test) => {
      const file = relative('dist', test.file ?? '');
      fileMs[file] = (fileMs[file] ?? 0) + (test.duration ?? 0);
    });
    runner.once(Runner.constants.EVENT_RUN_END, () => {
      const { passes, failures, pending } = runner.stats;
      writeFileSync(path, JSON.stringify({ passed: passes, failed: failures, skipped: pending, fileMs }));
    });
  }
}

module.exports = CountingReporter;
