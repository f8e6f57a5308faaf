import static io.trino.parquet.ParquetTypeUtils.constructField;
import static io.trino.parquet.ParquetTypeUtils.getColumnIO;
import static io.trino.parquet.ParquetTypeUtils.lookupColumnByName;
import static io.trino.parquet.predicate.PredicateUtils.buildPredicate;
import static io.trino.parquet.predicate.PredicateUtils.getFilteredRowGroups;
import static io.trino.memory.context.AggregatedMemoryContext.newSimpleAggregatedMemoryContext;

import io.trino.parquet.*;
import io.trino.parquet.reader.*;
import io.trino.spi.block.Block;
import io.trino.spi.connector.SourcePage;
import io.trino.spi.predicate.TupleDomain;
import io.trino.spi.type.*;
import java.io.*;
import java.util.*;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.schema.*;
import org.joda.time.DateTimeZone;

/** Reads Parquet files with Trino's reader: of each its path, its rows, and the values in them that are not null, without lists
 * and maps. */
public final class TrinoReads {
    private static final class LocalFile extends AbstractParquetDataSource {
        private final RandomAccessFile file;

        LocalFile(File path, ParquetReaderOptions options) throws IOException {
            super(new ParquetDataSourceId(path.toString()), path.length(), options);
            file = new RandomAccessFile(path, "r");
        }

        @Override
        protected void readInternal(long position, byte[] buffer, int offset, int length) throws IOException {
            file.seek(position);
            file.readFully(buffer, offset, length);
        }

        @Override
        public void close() throws IOException {
            file.close();
        }
    }

    /** Trino's type of a scalar column; null: a list or a map. */
    private static io.trino.spi.type.Type typeOf(org.apache.parquet.schema.Type column) {
        if (!column.isPrimitive()) {
            return null;
        }
        boolean isTime = column.getLogicalTypeAnnotation() instanceof LogicalTypeAnnotation.TimestampLogicalTypeAnnotation;
        return switch (column.asPrimitiveType().getPrimitiveTypeName()) {
            case BOOLEAN -> BooleanType.BOOLEAN;
            case INT32 -> IntegerType.INTEGER;
            case INT64 -> isTime ? TimestampWithTimeZoneType.TIMESTAMP_TZ_MICROS : BigintType.BIGINT;
            case DOUBLE -> DoubleType.DOUBLE;
            default -> column.getLogicalTypeAnnotation() == null ? VarbinaryType.VARBINARY : VarcharType.VARCHAR;
        };
    }

    /** The paths are on standard input, one a line. */
    public static void main(String[] none) throws Exception {
        for (String path : new BufferedReader(new InputStreamReader(System.in)).lines().toList()) {
            System.out.println(path + "\t" + read(new File(path)));
        }
    }

    /** The number of rows, and of values. */
    private static String read(File path) throws Exception {
        ParquetReaderOptions options = ParquetReaderOptions.defaultOptions();
        LocalFile source = new LocalFile(path, options);
        var metadata = MetadataReader.readFooter(source, Optional.empty());
        MessageType schema = metadata.getFileMetaData().getSchema();
        var columnIO = getColumnIO(schema, schema);
        List<Column> columns = new ArrayList<>();
        for (org.apache.parquet.schema.Type column : schema.getFields()) {
            var type = typeOf(column);
            if (type != null) {
                Field field = constructField(type, lookupColumnByName(columnIO, column.getName())).orElseThrow();
                columns.add(new Column(column.getName(), field));
            }
        }
        Map<List<String>, ColumnDescriptor> descriptors = ParquetTypeUtils.getDescriptors(schema, schema);
        TupleDomain<ColumnDescriptor> all = TupleDomain.all();
        var groups = getFilteredRowGroups(0, path.length(), source, metadata, List.of(all),
                List.of(buildPredicate(schema, all, descriptors, DateTimeZone.UTC)), descriptors, DateTimeZone.UTC, 1000, options);
        long rows = 0;
        long values = 0;
        try (ParquetReader reader = new ParquetReader(Optional.ofNullable(metadata.getFileMetaData().getCreatedBy()), columns, false,
                groups, source, DateTimeZone.UTC, newSimpleAggregatedMemoryContext(), options, RuntimeException::new,
                Optional.empty(), Optional.empty(), Optional.empty())) {
            SourcePage page;
            while ((page = reader.nextPage()) != null) {
                rows += page.getPositionCount();
                for (int channel = 0; channel < page.getChannelCount(); channel++) {
                    Block block = page.getBlock(channel);
                    for (int row = 0; row < block.getPositionCount(); row++) {
                        values += block.isNull(row) ? 0 : 1;
                    }
                }
            }
        }
        return rows + "\t" + values;
    }
}
