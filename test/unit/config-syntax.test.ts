import assert from 'node:assert/strict';
import { parseClusterConfig } from '../../shared/settings/load-cluster-config.js';

/** A faulty text; the place at which its fault is reported; the words. */
type Fault = [source: string, place: string, words: RegExp];

function requireFaults(faults: readonly Fault[]): void {
  for (const [source, place, words] of faults) {
    assert.throws(
      () => parseClusterConfig(source, 'cluster.yaml'),
      (thrown: unknown) => {
        assert.ok(thrown instanceof Error && 'code' in thrown && thrown.code === 'CONFIG_INVALID', String(thrown));
        assert.ok(thrown.message.startsWith(`cluster.yaml:${place}: `), `${thrown.message}, expected ${place}`);
        assert.match(thrown.message, words, source);
        return true;
      },
    );
  }
}

describe('a syntax fault of cluster.yaml', () => {
  it('of an open quote is reported where the quote opens', () => {
    const open = /this quote \(.\) is not closed; close it where the value ends$/;
    requireFaults([
      ['cluster: "home\nmain:\n  http_port: 7680\nlog: {}\n', '1:10', open],
      ['cluster: "home\nlog:\n  level: "info"\n', '1:10', open],
      ["cluster: 'home\n# it's\nlog: {}\n", '1:10', open],
      ['log:\n  level: "info\n  format: "json"\n', '2:10', open],
      ['nodes:\n  - id: "a\n  - id: b\n', '2:9', open],
      ['cluster: "a\\"\nlog: {}\n', '1:10', open],
      ['"cluster: home\nlog: {}\n', '1:1', open],
      ['nodes: [{id: "a}]\nlog: {}\n', '1:14', open],
      [
        'nodes: [{id: "a, role: main}, {id: "b"}]\n',
        '1:14',
        /more text follows the value "a, role: main\}, \{id: " in its line; close the quote \("\)/,
      ],
      ["cluster: 'a' b\n", '1:10', /more text follows the value 'a' in its line/],
    ]);
  });

  it('of an open bracket is reported where the bracket opens', () => {
    const list = /this "\[" is not closed; write its "\]", and indent/;
    const mapping = /this "\{" is not closed; write its "\}", and indent/;
    requireFaults([
      ['nodes: [a, b\nlog: {}\n', '1:8', list],
      ['nodes: [a, b', '1:8', list],
      ['log: {level: info\nmain: {}\n', '1:6', mapping],
      ['nodes: [\n  {id: a, role: main,\n  {id: b}\n]\n', '2:3', mapping],
      ['nodes: [\n  {id: a, b: [2, 3\n]\nlog: {}\n', '2:14', list],
      ['nodes:\n  - {id: a, role: main\n  - {id: b}\n', '2:5', mapping],
      ['log: {level: info]\n', '1:6', mapping],
      ['nodes: [\n{id: a}\n]\n', '1:8', list],
      ['nodes: [a]]\n', '1:11', /this "\]" closes nothing; take it out/],
    ]);
  });

  it('has words that say what to do', () => {
    requireFaults([
      ['cluster: a\n---\ncluster: b\n', '2:1', /a second document begins after "---"; keep one/],
      ['log:\n\tlevel: info\n', '2:1', /a tab indents this line; indent it with spaces/],
      ['log:\n  level: info\n format: json\n', '3:1', /begins in another column than the others/],
      ['cluster: a: b\n', '1:10', /a second ": " stands in this line/],
      ['cluster home\nlog: {}\n', '1:1', /cluster home: a ": " is missing here/],
      ['cluster: @home\n', '1:10', /a value cannot begin with @; put it in quotes/],
      ['model: "C:\\qwen"\n', '1:11', /\\q means nothing in double quotes; write \\\\ for each \\/],
    ]);
  });
});
