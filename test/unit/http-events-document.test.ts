import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import ts from 'typescript';
import { packageRoot } from '../../shared/base/files/package-root.js';

const document = readFileSync(join(packageRoot(), 'docs', 'http.md'), 'utf8');

function sourceOf(name: string): ts.SourceFile {
  const text = readFileSync(join(packageRoot(), 'shared', 'wire', name), 'utf8');
  return ts.createSourceFile(name, text, ts.ScriptTarget.ES2022, true);
}

const events = sourceOf('cluster-events.ts');
const machines = sourceOf('cluster-machines.ts');

/** Names of properties; of an object that has no name of its own (or a list of such, or null) those within it: "link.sentBytes". */
function propertiesOf(type: ts.TypeLiteralNode | ts.InterfaceDeclaration, prefix = ''): string[] {
  return type.members.flatMap((property) => {
    assert.ok(ts.isPropertySignature(property) && property.type !== undefined);
    const name = `${prefix}${property.name.getText()}`;
    const inner = literalWithin(property.type);
    return inner === null ? [name] : propertiesOf(inner, `${name}.`);
  });
}

function literalWithin(type: ts.TypeNode): ts.TypeLiteralNode | null {
  if (ts.isTypeLiteralNode(type)) return type;
  if (ts.isArrayTypeNode(type)) return literalWithin(type.elementType);
  if (!ts.isUnionTypeNode(type)) return null;
  return type.types.map(literalWithin).find((found) => found !== null) ?? null;
}

/** First cells of the table below a heading, without its head. */
function documented(heading: string): string[] {
  const [, section = ''] = document.split(`### ${heading}\n`);
  const [text = ''] = section.split('\n#');
  const rows = [...text.matchAll(/^\| `([\w.]+)` \|/gm)];
  return rows.map(([, name = '']) => name);
}

describe("the sections of docs/http.md about the page's data", () => {
  const interfaces = [...events.statements, ...machines.statements].filter((statement) =>
    ts.isInterfaceDeclaration(statement),
  );

  it('are compared with the declared events and machines', () => assert.ok(interfaces.length >= 14));

  for (const declared of interfaces) {
    it(`say of each property of ${declared.name.text} what it means`, () => {
      assert.deepEqual(documented(`\`${declared.name.text}\``), propertiesOf(declared));
    });
  }

  it('name every type of event', () => {
    const event = events.statements.find(
      (statement) => ts.isTypeAliasDeclaration(statement) && statement.name.text === 'ClusterEvent',
    );
    const types = [...(event?.getText() ?? '').matchAll(/type: '(\w+)'/g)].map(([, type = '']) => type);
    assert.ok(types.length > 0);
    assert.deepEqual(documented('`GET /cluster/events`'), types);
  });
});
